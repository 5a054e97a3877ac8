// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
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
	contract contract
	files    []*file
	signals  map[string]*signal
	levels   map[string]level
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
// keys, unknown names and missing texts are errors that name file and line. All
// errors are returned at once, joined.
func ReadPack(dir fs.FS) (*Pack, error) {
	names, err := fs.Glob(dir, "*.yml")
	if err != nil {
		return nil, err
	}
	p := &Pack{signals: map[string]*signal{}, levels: map[string]level{}}
	var errs []error
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		if name == contractFile {
			_, err = strict(name, data, &p.contract)
			errs = append(errs, err)
			continue
		}
		f := &file{name: name}
		if f.pos, err = strict(name, data, f); err != nil {
			errs = append(errs, err)
			continue
		}
		f.locate()
		p.files = append(p.files, f)
	}
	if len(p.contract.Levels) == 0 {
		errs = append(errs, fmt.Errorf("%s: no levels", contractFile))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, l := range p.contract.Levels {
		p.levels[l.Name] = l
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, nil
}

// strict decodes one YAML document; its errors name the file and line.
func strict(name string, data []byte, into any) (positions, error) {
	if err := config.Strict(name, data, into); err != nil {
		return positions{}, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return positions{}, fmt.Errorf("%s: %w", name, err)
	}
	if len(doc.Content) == 0 {
		return positions{}, fmt.Errorf("%s: empty", name)
	}
	return positions{file: name, root: doc.Content[0]}, nil
}

// positions finds the place of a value in its file.
type positions struct {
	file string
	root *yaml.Node
}

// position is a place in a file.
type position struct {
	file string
	line int
}

func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// errorf makes an error that starts with the position.
func (p position) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s", p, fmt.Sprintf(format, args...))
}

// find returns the place of the element that the keys and indexes lead to.
func (p positions) find(steps ...any) position {
	node := p.root
	for _, step := range steps {
		next := child(node, step)
		if next == nil {
			break
		}
		node = next
	}
	return position{file: p.file, line: node.Line}
}

// child returns a mapping's value (step a string) or a sequence's element (step
// an int), or nil.
func child(node *yaml.Node, step any) *yaml.Node {
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
