package source

import (
	"fmt"
	"strconv"
	"strings"
)

// The rules of the file form that a [Problem] may name, in addition to those of package graph.
const (
	RuleSyntax = "file_syntax" // the file is one document of YAML or JSON in UTF-8
	RuleKey    = "file_key"    // every key is known
	RuleTwice  = "file_twice"  // a key is there once
	RuleForm   = "file_form"   // a value has the form that its key asks for
	RuleSize   = "file_size"   // the file is not too large, with its aliases expanded
)

// maxProblems bounds the problems that one Error describes.
const maxProblems = 20

// A Problem is one thing that is wrong with a file.
type Problem struct {
	File string
	// Line counts from 1.
	Line int
	// Path leads to the value: nodes.check.after[0]. Empty for the whole file.
	Path string
	// Rule is one of the Rule constants, here or in package graph.
	Rule string
	// Message is a sentence without the path.
	Message string
}

// String returns the problem in one line: file:line: path: message.
func (p Problem) String() string {
	s := p.File + ":" + strconv.Itoa(p.Line) + ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	return s + p.Message
}

// Error is everything that is wrong with a file.
type Error struct {
	// Problems are at least one and at most 20, by line.
	Problems []Problem
	// More counts the problems beyond those.
	More int
}

// Error returns a line for each problem.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}
