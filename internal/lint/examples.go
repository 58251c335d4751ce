package lint

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// examplesPage is the page that lists the tests that read as examples.
const examplesPage = "examples/README.md"

var exampleLink = regexp.MustCompile(`\[((?:Test|Example)\w*)\]\(([^)]+)\)`)

// checkExamples is the law "examples": the files that the page names have the tests that it names.
func checkExamples(read func(name string) ([]byte, error)) (found []finding) {
	text, err := read(examplesPage)
	if err != nil {
		return []finding{{examplesPage, 0, "examples", err.Error()}}
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, link := range exampleLink.FindAllStringSubmatch(line, -1) {
			file := path.Join(path.Dir(examplesPage), link[2])
			code, err := read(file)
			if err != nil || !strings.Contains(string(code), "\nfunc "+link[1]+"(") {
				found = append(found, finding{examplesPage, i + 1, "examples", fmt.Sprintf("%s is not in %s", link[1], file)})
			}
		}
	}
	return found
}
