// SPDX-License-Identifier: Apache-2.0

// Package rackpulse holds only tests that guard the shape of the repository:
// which package may import which, and the budgets for files and functions.
package rackpulse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/rackpulse/rackpulse/"

// allowed is the import table: each package and what of ours it may import.
// Only cmd joins siblings. Change it deliberately, with the reason in the commit.
var allowed = map[string][]string{
	"site":               {},
	"config":             {},
	"query":              {},
	"ledger":             {"site"},
	"sim":                {"site"},
	"collector":          {"site"},
	"collector/gpu":      {"site", "config", "collector", "sim", "xid"},
	"collector/facility": {"site", "config", "collector", "sim"},
	"lease":              {"site", "ledger", "lease/leasepb"},
	"lease/leasepb":      {},
	"action":             {"site", "config", "ledger"},
	"rules":              {"site", "config"},
	"alerting":           {},
	"dashboards":         {},
	"engine":             {"query"},
	"explain":            {"site", "query", "rules"},
	"registry":           {"site", "config", "ledger", "lease", "query"},
	"web":                {"site", "registry"},
	"testtool":           {},
	"testtool/hall":      {"site", "sim"},
	"xid":                {},
}

// heavy says which packages may link an expensive or dangerous import.
var heavy = map[string][]string{
	"os/exec":                                 {"collector/gpu", "collector/facility", "action", "rules", "testtool", "cmd/rackpulse"},
	"github.com/NVIDIA/":                      {"collector/gpu"},
	"github.com/prometheus/prometheus/tsdb":   {"engine"},
	"github.com/prometheus/prometheus/rules":  {"engine"},
	"github.com/prometheus/prometheus/promql": {"engine", "rules"},
	"go.etcd.io/":                             {"ledger"},
}

type source struct {
	path string // slash path from the root
	pkg  string // its folder
	test bool
	file *ast.File
	fset *token.FileSet
}

// sources parses every Go file of the tree, whatever its build tags.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "build" || d.Name() == "data" || d.Name() == "tools" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		out = append(out, source{path: path, pkg: filepath.ToSlash(filepath.Dir(path)), test: strings.HasSuffix(path, "_test.go"), file: file, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestImportTable holds the table of allowed imports.
func TestImportTable(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.pkg == "." {
			continue
		}
		ours, known := allowed[s.pkg]
		cmd := strings.HasPrefix(s.pkg, "cmd/")
		if !known && !cmd {
			t.Errorf("%s: package %s is not in the import table", s.path, s.pkg)
			continue
		}
		for _, imp := range s.file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if short, ok := strings.CutPrefix(path, module); ok && !cmd && !slices.Contains(ours, short) {
				t.Errorf("%s: %s may not import %s", s.path, s.pkg, short)
			}
			checkHeavy(t, s, path)
		}
	}
}

func checkHeavy(t *testing.T, s source, path string) {
	t.Helper()
	for prefix, who := range heavy {
		exempt := prefix == "github.com/prometheus/prometheus/promql" && strings.HasPrefix(path, prefix+"/parser")
		if strings.HasPrefix(path, prefix) && !exempt && !slices.Contains(who, s.pkg) {
			t.Errorf("%s: %s may not link %s", s.path, s.pkg, path)
		}
	}
}

// TestBudgets holds the limits on files, functions and documentation.
func TestBudgets(t *testing.T) {
	for _, s := range sources(t) {
		if generated(s.file) {
			continue
		}
		if n := s.fset.File(s.file.Pos()).LineCount(); n > 400 {
			t.Errorf("%s: %d lines, the budget is 400", s.path, n)
		}
		if !strings.HasPrefix(firstComment(s.file), "SPDX-License-Identifier: Apache-2.0") {
			t.Errorf("%s: no SPDX line at the top", s.path)
		}
		for _, decl := range s.file.Decls {
			checkFunc(t, s, decl)
			if !s.test {
				checkDoc(t, s, decl)
			}
		}
	}
}

func generated(f *ast.File) bool { return ast.IsGenerated(f) }

func firstComment(f *ast.File) string {
	if len(f.Comments) == 0 {
		return ""
	}
	return strings.TrimSpace(strings.TrimPrefix(f.Comments[0].List[0].Text, "//"))
}

func checkFunc(t *testing.T, s source, decl ast.Decl) {
	t.Helper()
	fn, ok := decl.(*ast.FuncDecl)
	if !ok || fn.Body == nil {
		return
	}
	lines := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1
	if limit := 60; lines > limit && !s.test {
		t.Errorf("%s: func %s has %d lines, the budget is %d", s.path, fn.Name.Name, lines, limit)
	}
	if cc := cyclomatic(fn); cc > 15 && !s.test {
		t.Errorf("%s: func %s has cyclomatic complexity %d, the budget is 15", s.path, fn.Name.Name, cc)
	}
	if !s.test && !strings.HasPrefix(s.pkg, "cmd/") {
		ast.Inspect(fn, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && (id.Name == "os" && sel.Sel.Name == "Exit" || id.Name == "log" && strings.HasPrefix(sel.Sel.Name, "Fatal")) {
				t.Errorf("%s: func %s calls %s.%s; only cmd may end the process", s.path, fn.Name.Name, id.Name, sel.Sel.Name)
			}
			return true
		})
	}
}

// cyclomatic counts the decisions of a function plus one, as gocyclo does.
func cyclomatic(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func checkDoc(t *testing.T, s source, decl ast.Decl) {
	t.Helper()
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && receiverExported(d) {
			t.Errorf("%s: exported %s has no comment", s.path, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			for _, name := range undocumented(d, spec) {
				t.Errorf("%s: exported %s has no comment", s.path, name)
			}
		}
	}
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if idx, ok := typ.(*ast.IndexExpr); ok {
		typ = idx.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func undocumented(d *ast.GenDecl, spec ast.Spec) []string {
	var names []string
	switch sp := spec.(type) {
	case *ast.TypeSpec:
		if sp.Name.IsExported() && d.Doc == nil && sp.Doc == nil && sp.Comment == nil {
			names = append(names, sp.Name.Name)
		}
	case *ast.ValueSpec:
		for _, id := range sp.Names {
			if id.IsExported() && d.Doc == nil && sp.Doc == nil && sp.Comment == nil {
				names = append(names, id.Name)
			}
		}
	}
	sort.Strings(names)
	return names
}
