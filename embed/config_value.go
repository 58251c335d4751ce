package embed

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"perdure/internal/bytesize"
)

// The types a setting may have are those of the switches in this file. An int64 is a size in bytes.

// A Switch is a yes or no whose default may be yes: its zero value means the default.
type Switch int8

// The values of a Switch that was chosen.
const (
	Off Switch = -1
	On  Switch = 1
)

// SwitchOf is a chosen value.
func SwitchOf(on bool) Switch {
	if on {
		return On
	}
	return Off
}

// A Percent is a share, 3 for 3 %, whose default may be other than 0: its zero value means the default.
type Percent float64

// NoShare is a Percent that was chosen to be 0.
const NoShare Percent = -1

// Share is p as a fraction of 1; 0 for NoShare.
func (p Percent) Share() float64 { return max(float64(p), 0) / 100 }

// parseValue reads text into the field that value points to. The error is a reason for people and does
// not repeat the text.
func parseValue(value any, text string) error {
	switch v := value.(type) {
	case *string:
		*v = text
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("not a yes or no; write true or false")
		}
		*v = b
	case *Switch:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("not a yes or no; write true or false")
		}
		*v = SwitchOf(b)
	case *Percent:
		n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err != nil || !(n >= 0 && n <= 100) {
			return fmt.Errorf("not a percentage; write a number from 0%% to 100%%, as in 3%%")
		}
		if *v = Percent(n); n == 0 {
			*v = NoShare
		}
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("not a whole number")
		}
		*v = n
	case *uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("not a whole number of 0 or more")
		}
		*v = n
	case *int64:
		n, err := bytesize.Parse(text)
		if err != nil {
			return err
		}
		*v = n
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("not a duration; write a number with a unit, as in 250ms, 2s or 1m30s")
		}
		*v = d
	case *[]string:
		*v = nil
		for _, part := range strings.Split(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				*v = append(*v, part)
			}
		}
	default:
		panic(fmt.Sprintf("embed: a setting of type %T", value))
	}
	return nil
}

// formatValue writes a field as parseValue reads it.
func formatValue(value any) string {
	switch v := value.(type) {
	case *string:
		return *v
	case *bool:
		return strconv.FormatBool(*v)
	case *Switch:
		return strconv.FormatBool(*v == On)
	case *Percent:
		return strconv.FormatFloat(max(float64(*v), 0), 'f', -1, 64) + "%"
	case *int:
		return strconv.Itoa(*v)
	case *uint64:
		return strconv.FormatUint(*v, 10)
	case *int64:
		return bytesize.Format(*v)
	case *time.Duration:
		return formatDuration(*v)
	case *[]string:
		return strings.Join(*v, ",")
	default:
		panic(fmt.Sprintf("embed: a setting of type %T", value))
	}
}

func isZero(value any) bool {
	switch v := value.(type) {
	case *string:
		return *v == ""
	case *bool:
		return !*v
	case *Switch:
		return *v == 0
	case *Percent:
		return *v == 0
	case *int:
		return *v == 0
	case *uint64:
		return *v == 0
	case *int64:
		return *v == 0
	case *time.Duration:
		return *v == 0
	case *[]string:
		return len(*v) == 0
	default:
		panic(fmt.Sprintf("embed: a setting of type %T", value))
	}
}

// copyValue copies between two fields of one type.
func copyValue(to, from any) {
	switch v := to.(type) {
	case *string:
		*v = *from.(*string)
	case *bool:
		*v = *from.(*bool)
	case *Switch:
		*v = *from.(*Switch)
	case *Percent:
		*v = *from.(*Percent)
	case *int:
		*v = *from.(*int)
	case *uint64:
		*v = *from.(*uint64)
	case *int64:
		*v = *from.(*int64)
	case *time.Duration:
		*v = *from.(*time.Duration)
	case *[]string:
		*v = append([]string(nil), *from.(*[]string)...)
	default:
		panic(fmt.Sprintf("embed: a setting of type %T", to))
	}
}

// formatDuration is time.Duration's own text without zero minutes and seconds at its end: 10m, not 10m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
