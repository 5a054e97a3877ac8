// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/config"
)

//go:embed correlations/*.yml
var embedded embed.FS

// contractFile is the file of correlations/ that holds the shared contract.
const contractFile = "contract.yml"

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Pack is the whole of correlations/, read and checked.
type Pack struct {
	contract   contract
	contractAt position
	files      []*file
	signals    map[string]*signal
	levels     map[string]level
}

// DefaultPack returns the correlations that come with the program.
func DefaultPack() (*Pack, error) {
	sub, err := fs.Sub(embedded, "correlations")
	if err != nil {
		return nil, err
	}
	return ReadPack(sub)
}

// ReadPack reads contract.yml and all other *.yml of a folder, strictly: unknown
// keys, unknown names, missing texts and files out of all proportion are errors
// with file, line and column. All of them are returned at once, as Problems.
func ReadPack(dir fs.FS) (*Pack, error) {
	return readFolders(folder{dir, ""})
}

// ReadBeside reads the correlations of a folder as ReadPack does. Without a
// contract.yml of its own they stand beside the built-in ones and may use their
// signals; a file that has the name of a built-in one takes its place. path is the
// folder's name in messages.
func ReadBeside(dir fs.FS, path string) (*Pack, error) {
	if _, err := fs.Stat(dir, contractFile); err == nil {
		return readFolders(folder{dir, path})
	}
	sub, err := fs.Sub(embedded, "correlations")
	if err != nil {
		return nil, err
	}
	return readFolders(folder{sub, ""}, folder{dir, path})
}

// folder is a folder of correlations with its name in messages.
type folder struct {
	fs.FS
	path string
}

func readFolders(folders ...folder) (*Pack, error) {
	p := &Pack{signals: map[string]*signal{}, levels: map[string]level{}}
	from := map[string]folder{}
	for _, dir := range folders {
		names, err := fs.Glob(dir, "*.yml")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			from[name] = dir
		}
	}
	if len(from) > maxFiles {
		return nil, fmt.Errorf("%d files, want at most %d", len(from), maxFiles)
	}
	var errs []error
	total := 0
	for _, name := range slices.Sorted(maps.Keys(from)) {
		data, err := readFile(from[name], name)
		if err != nil {
			return nil, err
		}
		if total += len(data); total > maxPackBytes {
			return nil, fmt.Errorf("%s: the pack is larger than %d bytes", name, maxPackBytes)
		}
		errs = append(errs, p.readFile(path.Join(from[name].path, name), name == contractFile, data))
	}
	if len(p.contract.Levels) == 0 {
		errs = append(errs, position{file: contractFile}.errorf("no levels"))
	}
	if err := flatten(errs...); err != nil {
		return nil, err
	}
	if err := p.boundExprs(); err != nil {
		return nil, err
	}
	for _, l := range p.contract.Levels {
		p.levels[l.Name] = l
	}
	if err := flatten(p.check()); err != nil {
		return nil, err
	}
	return p, nil
}

// readFile reads at most maxFileBytes.
func readFile(dir folder, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(dir.path, name), err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", path.Join(dir.path, name), maxFileBytes)
	}
	return data, nil
}

// readFile adds one file to the pack.
func (p *Pack) readFile(name string, shared bool, data []byte) error {
	if shared {
		pos, err := strict(name, data, &p.contract)
		if err != nil {
			return err
		}
		p.contractAt = pos.find()
		return p.contract.check(pos)
	}
	f := &file{name: name}
	var err error
	if f.pos, err = strict(name, data, f); err != nil {
		return err
	}
	f.locate()
	if err := f.bounds(); err != nil {
		return err
	}
	f.ruleOut()
	p.files = append(p.files, f)
	return nil
}

// flatten collects the problems of joined errors; other errors stay as they are.
func flatten(errs ...error) error {
	var out Problems
	var rest []error
	var walk func(err error)
	walk = func(err error) {
		switch e := err.(type) {
		case nil:
		case Problems:
			out = append(out, e...)
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				walk(one)
			}
		default:
			rest = append(rest, err)
		}
	}
	walk(errors.Join(errs...))
	if len(out) > 0 {
		out = sorted(out)
		if n := len(out); n > maxProblems {
			out = append(out[:maxProblems], out[n-1])
			out[maxProblems].Message = fmt.Sprintf("and %d more", n-maxProblems)
		}
		rest = append(rest, out)
	}
	if len(rest) == 1 {
		return rest[0]
	}
	return errors.Join(rest...)
}

var strictLine = regexp.MustCompile(`^(.+?):(?:(\d+):)? (.*)$`)

// strict decodes one YAML document; its errors are Problems.
func strict(name string, data []byte, into any) (positions, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return positions{}, Problems{syntaxError(name, data, err)}
	}
	if len(doc.Content) == 0 {
		return positions{}, position{file: name}.errorf("empty")
	}
	pos := positions{file: name, root: doc.Content[0]}
	count := 0
	if err := pos.bounds(pos.root, 0, &count); err != nil {
		return positions{}, err
	}
	err := config.Strict(name, data, into)
	if err == nil {
		return pos, nil
	}
	var out Problems
	lines := strings.Split(string(data), "\n")
	for text := range strings.SplitSeq(err.Error(), "\n") {
		one := Problem{File: name, Line: 1, Column: 1, ID: "C000", Message: text}
		if m := strictLine.FindStringSubmatch(text); m != nil && m[1] == name {
			one.Message = m[3]
			if n, err := strconv.Atoi(m[2]); err == nil {
				one.Line = n
			}
		}
		if one.Line <= len(lines) {
			one.Column = columnOf(lines[one.Line-1], one.Message)
		}
		out = append(out, pos.valueFault(one))
	}
	return positions{}, out
}

var yamlLine = regexp.MustCompile(`^yaml: line \d+: `)

// columnOf finds what a message of the decoder quotes in its line, else where the
// line begins.
func columnOf(line, message string) int {
	if m := quoted.FindStringSubmatch(message); m != nil {
		if i := strings.Index(line, m[1]); i >= 0 {
			return i + 1
		}
	}
	return len(line) - len(strings.TrimLeft(line, " -")) + 1
}

// positions finds the place of a value in its file.
type positions struct {
	file string
	root *yaml.Node
}

// position is a place in a file: that of a value, or of its key where it has one.
type position struct {
	file string
	node *yaml.Node // nil: the file as a whole
}

// problem makes a finding at the position.
func (p position) problem(id, format string, args ...any) Problem {
	out := Problem{File: p.file, Line: 1, Column: 1, ID: id, Message: fmt.Sprintf(format, args...)}
	if p.node != nil {
		out.Line, out.Column = max(p.node.Line, 1), max(p.node.Column, 1)
	}
	return out
}

// String is "file:line:column".
func (p position) String() string {
	where := p.problem("", "")
	return fmt.Sprintf("%s:%d:%d", where.File, where.Line, where.Column)
}

// errorf makes an error that starts with the position.
func (p position) errorf(format string, args ...any) error {
	return Problems{p.problem("C000", format, args...)}
}

// key returns the place of the value that keys and indexes lead to, as far as
// they do.
func (p position) key(steps ...any) position {
	for _, step := range steps {
		next := child(p.node, step)
		if next == nil {
			break
		}
		p.node = next
	}
	return p
}

// find returns the place of the element that the keys and indexes lead to.
func (p positions) find(steps ...any) position {
	return position{file: p.file, node: p.root}.key(steps...)
}

// child returns a mapping's value (step a string) or a sequence's element (step
// an int), or nil.
func child(node *yaml.Node, step any) *yaml.Node {
	if node == nil {
		return nil
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch s := step.(type) {
	case int:
		if s < len(node.Content) {
			return node.Content[s]
		}
	case string:
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == s {
				return node.Content[i+1]
			}
		}
	}
	return nil
}

func (f *file) locate() {
	for i := range f.Signals {
		f.Signals[i].at = f.pos.find("signals", i)
	}
	for i := range f.Alerts {
		f.Alerts[i].at = f.pos.find("alerts", i)
	}
	for i := range f.Tests {
		f.Tests[i].at = f.pos.find("tests", i)
	}
	if f.Correlation != nil {
		f.Correlation.at = f.pos.find("correlation")
	}
}

// ruleOut writes the signals of "unless" into every branch.
func (f *file) ruleOut() {
	if f.Correlation == nil {
		return
	}
	for i := range f.Correlation.Branches {
		b := &f.Correlation.Branches[i]
		for _, name := range f.Correlation.Unless {
			b.Causes = append(b.Causes, cause{Signal: name, Role: "contradicting", Weight: 1})
		}
	}
}

// edge returns the edge between two levels.
func (p *Pack) edge(from, to string) (edge, bool) {
	i := slices.IndexFunc(p.contract.Edges, func(e edge) bool { return e.From == from && e.To == to })
	if i < 0 {
		return edge{}, false
	}
	return p.contract.Edges[i], true
}

// specs returns the correlations with their files, in file order.
func (p *Pack) specs() []*file {
	var out []*file
	for _, f := range p.files {
		if f.Correlation != nil {
			out = append(out, f)
		}
	}
	return out
}

// snake turns an id into a part of a metric name.
func snake(id string) string { return strings.ReplaceAll(id, "-", "_") }

// docPath is where the documentation of a correlation lies in the repository.
func docPath(id string) string { return path.Join("docs/correlations", id+".md") }
