package lint

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// goMod is what `go mod edit -json` prints of a go.mod, as far as it matters here.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Tool []struct{ Path string }
}

// readGoMod parses the go.mod in dir.
func readGoMod(dir string) (*goMod, error) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod edit -json: %w", err)
	}
	m := new(goMod)
	if err := json.Unmarshal(out, m); err != nil {
		return nil, fmt.Errorf("go mod edit -json: %w", err)
	}
	return m, nil
}

// direct are the modules that the project chose: those that its code imports, and those of its tools.
func (m *goMod) direct() []string {
	var out []string
	for _, r := range m.Require {
		if !r.Indirect {
			out = append(out, r.Path)
		}
	}
	for _, tool := range m.Tool {
		from := ""
		for _, r := range m.Require {
			if under(tool.Path, r.Path) && len(r.Path) > len(from) {
				from = r.Path
			}
		}
		if from != "" {
			out = append(out, from)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// checkDependencies is the law "dependencies": text, the content of ARCHITECTURE.md, names every direct
// module by its path, of which a leading github.com/ may be left out. A nil text means that the file
// does not exist.
func checkDependencies(m *goMod, text []byte) []finding {
	if text == nil {
		return []finding{{"ARCHITECTURE.md", 0, "dependencies", "the file does not exist; it explains, among other things, why each dependency is there"}}
	}
	var out []finding
	for _, path := range m.direct() {
		if !mentions(string(text), path) {
			out = append(out, finding{"ARCHITECTURE.md", 0, "dependencies", fmt.Sprintf(
				"does not mention %s, which go.mod requires directly: say what it is for", path)})
		}
	}
	return out
}

// mentions reports whether text contains the module path as a whole, not as a part of a longer one.
func mentions(text, path string) bool {
	short := strings.TrimPrefix(path, "github.com/")
	whole := regexp.MustCompile(`(?:^|[^\w./-]|github\.com/)` + regexp.QuoteMeta(short) + `(?:[^\w./-]|\.?(?:\s|$))`)
	return whole.MatchString(text)
}
