// SPDX-License-Identifier: Apache-2.0

// Package config reads configuration files: strict YAML with line numbers, parts
// that decode themselves, secrets that are never printed, and reload. It
// imports nothing else of RackPulse.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

const maxProblems = 50

// Strict decodes one YAML document into v, a pointer. Unknown and repeated keys
// are errors, and so is a second document; an empty file leaves v as it is, so
// that v may hold defaults. name stands for the file in messages, which have the
// form
//
//	agent.yml:7: unknown key "intervall"
func Strict(name string, data []byte, v any) error {
	if err := strict(name, data, v, func(line int) int { return line }); err != nil {
		return err
	}
	bind(v, name, nil)
	return nil
}

// strict is Strict with lines translated by at, and parts of v left unbound.
func strict(name string, data []byte, v any, at func(line int) int) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(v); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return explain(name, err, at)
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return explain(name, err, at)
	default:
		return fmt.Errorf("%s:%d: a second document; want only one", name, at(second.Line))
	}
}

var (
	atLine  = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	unknown = regexp.MustCompile(`(?s)^field (.*) not found in type .+$`)
	badType = regexp.MustCompile("(?s)^cannot unmarshal !!(\\w+)(?: `(.*)`)? into (\\S+)$")
)

// explain turns an error of the YAML library into one line for each fault.
func explain(name string, err error, at func(line int) int) error {
	var faults *yaml.TypeError
	if !errors.As(err, &faults) {
		return &fileError{text: place(name, strings.TrimPrefix(err.Error(), "yaml: "), at), cause: err}
	}
	lines := make([]string, 0, len(faults.Errors))
	for i, text := range faults.Errors {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("%s: and %d more", name, len(faults.Errors)-i))
			break
		}
		lines = append(lines, place(name, text, at))
	}
	return &fileError{text: strings.Join(lines, "\n"), cause: err}
}

// place puts "line 7: text" into the form "name:7: text" and says the library's
// texts in the user's words.
func place(name, text string, at func(line int) int) string {
	if m := atLine.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		name = fmt.Sprintf("%s:%d", name, at(line))
		text = text[len(m[0]):]
	}
	if m := unknown.FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("unknown key %q", m[1])
	} else if m := badType.FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("want %s, got %s", wanted(m[3]), gotten(m[1], m[2]))
	}
	return name + ": " + text
}

// wanted says a Go type in YAML's words.
func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "map["):
		return "a mapping"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a text"
	case goType == "time.Duration":
		return "a duration such as 15s"
	default:
		return "a mapping"
	}
}

// gotten says a value of a YAML type.
func gotten(tag, value string) string {
	switch tag {
	case "map":
		return "a mapping"
	case "seq":
		return "a list"
	default:
		return strconv.Quote(value)
	}
}

// fileError is a worded error that keeps its cause for errors.Is and errors.As.
type fileError struct {
	text  string
	cause error
}

// Error implements error.
func (e *fileError) Error() string { return e.text }

// Unwrap returns the error that this one puts in words.
func (e *fileError) Unwrap() error { return e.cause }
