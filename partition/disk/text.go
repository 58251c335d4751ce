package disk

import "fmt"

// Space formats how much space the disk has.
func (st Status) Space() string {
	return fmt.Sprintf("%s of %s free, %s is the low mark", bytesText(st.Free), bytesText(st.Total), bytesText(st.Low))
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	default:
		return fmt.Sprintf("%d KiB", n>>10)
	}
}
