package resonate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// maxCron bounds a cron expression's bytes.
const maxCron = 256

var cronParser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// timetable is a cron expression: minute, hour, day, month, weekday, and optionally seconds before them. Times are UTC.
// Weekdays are numbered as by Quartz, 1 = Sunday to 7 = Saturday, or named.
type timetable struct{ schedule cron.Schedule }

// parseCron reads a cron expression that has an occurrence.
func parseCron(expression string) (timetable, error) {
	if len(expression) > maxCron {
		return timetable{}, fmt.Errorf("expression of %d bytes exceeds %d", len(expression), maxCron)
	}
	fields := strings.Fields(expression)
	if len(fields) != 5 && len(fields) != 6 || strings.ContainsRune(expression, '=') { // a time zone
		return timetable{}, fmt.Errorf("expression must have 5 or 6 fields")
	}
	last := len(fields) - 1
	weekday, err := fromQuartz(fields[last])
	if err != nil {
		return timetable{}, err
	}
	fields[last] = weekday
	schedule, err := cronParser.Parse(strings.Join(fields, " "))
	if err != nil {
		return timetable{}, err
	}
	t := timetable{schedule}
	if _, ok := t.next(0); !ok {
		return timetable{}, fmt.Errorf("expression never occurs")
	}
	return t, nil
}

// fromQuartz renumbers a field of weekdays: the parser counts from 0 = Sunday.
func fromQuartz(field string) (string, error) {
	var out strings.Builder
	step := false
	for i := 0; i < len(field); {
		c := field[i]
		if c < '0' || c > '9' {
			step = c == '/'
			out.WriteByte(c)
			i++
			continue
		}
		end := i
		for end < len(field) && field[end] >= '0' && field[end] <= '9' {
			end++
		}
		n, err := strconv.Atoi(field[i:end])
		switch {
		case step:
		case err != nil || n < 1 || n > 7:
			return "", fmt.Errorf("weekday %s must be 1 (Sunday) to 7 (Saturday)", field[i:end])
		default:
			n--
		}
		out.WriteString(strconv.Itoa(n))
		i = end
	}
	return out.String(), nil
}

// next is the first occurrence after a time, in Unix milliseconds; ok is false if there is none within five years.
func (t timetable) next(after int64) (at int64, ok bool) {
	when := t.schedule.Next(time.UnixMilli(after).UTC())
	return when.UnixMilli(), !when.IsZero()
}

// latest is the first of the last maxCatchUp occurrences from one on until now. It looks back from now over a window that
// doubles, so that its cost does not grow with the occurrences before.
func (t timetable) latest(from, now int64) int64 {
	for window := time.Hour.Milliseconds(); ; window *= 2 {
		at, ok, whole := from, true, now-from <= window
		if !whole {
			at, ok = t.next(now - window)
		}
		recent := make([]int64, 0, maxCatchUp)
		for n := 0; ok && at <= now; n++ {
			if len(recent) < maxCatchUp {
				recent = append(recent, at)
			} else {
				recent[n%maxCatchUp] = at
			}
			if at, ok = t.next(at); len(recent) == maxCatchUp && (!ok || at > now) {
				return recent[(n+1)%maxCatchUp]
			}
		}
		if whole {
			return from
		}
	}
}
