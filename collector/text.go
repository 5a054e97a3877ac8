// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// pageHandler serves the text format, which nearly everybody scrapes. What the Store
// shows is written straight from its rows, whose names and labels are text already;
// through promhttp, which looks at each name and each label anew, a scrape costs
// several times as much. Other formats are left to promhttp.
type pageHandler struct {
	merged
	slots  chan struct{} // bounds the scrapes at one time
	logger log.Logger
	other  http.Handler // protobuf, and parts of the page
	// openMetrics is for clients that take nothing else. Everybody else gets the text
	// format, also Prometheus, which prefers OpenMetrics: that format demands _total
	// behind the names of counters, and dcgm-exporter's counters, whose names must
	// stay, would come to Prometheus with the type unknown.
	openMetrics http.Handler
}

// scratch is the memory of one scrape.
type scratch struct {
	page   bytes.Buffer
	packed bytes.Buffer
	gzip   *gzip.Writer
}

var scratches = sync.Pool{New: func() any {
	// The fastest level; the default one costs several times as much.
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return &scratch{gzip: z}
}}

func (h *pageHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes at one time are the limit, try again later", cap(h.slots)), http.StatusServiceUnavailable)
		return
	}
	if onlyOpenMetrics(r.Header) {
		h.openMetrics.ServeHTTP(w, r)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	if format.FormatType() != expfmt.TypeTextPlain || r.URL.RawQuery != "" { // name[]=... picks families
		h.other.ServeHTTP(w, r)
		return
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.page.Reset()
	h.render(&s.page)
	body := s.page.Bytes()
	header := w.Header()
	header.Add("Vary", "Accept")
	header.Add("Vary", "Accept-Encoding")
	header.Set("Content-Type", string(format))
	if acceptsGzip(r.Header) {
		s.packed.Reset()
		s.gzip.Reset(&s.packed)
		// A bytes.Buffer takes everything.
		_, _ = s.gzip.Write(body)
		_ = s.gzip.Close()
		body = s.packed.Bytes()
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(body)
}

// render writes all families.
func (h *pageHandler) render(buf *bytes.Buffer) {
	all, err := h.families(h.store.current(time.Now()))
	if err != nil {
		level.Error(h.logger).Log("msg", "gathering the agent's own metrics", "err", err)
	}
	for _, f := range all {
		if f.other == nil {
			buf.Write(f.appendText(buf.AvailableBuffer()))
		} else if _, err := expfmt.MetricFamilyToText(buf, f.other); err != nil {
			level.Error(h.logger).Log("msg", "writing a family", "err", err)
		}
	}
}

// acceptsGzip reads Accept-Encoding.
func acceptsGzip(h http.Header) bool {
	for coding, wanted := range accepted(h, "Accept-Encoding") {
		if coding == "gzip" {
			return wanted
		}
	}
	return false
}

// onlyOpenMetrics tells whether a client asks for OpenMetrics and takes none of the
// other formats.
func onlyOpenMetrics(h http.Header) bool {
	open := false
	for media, wanted := range accepted(h, "Accept") {
		switch media {
		case "application/openmetrics-text":
			open = open || wanted
		case "*/*", "text/*", "text/plain", "application/vnd.google.protobuf":
			if wanted {
				return false
			}
		}
	}
	return open
}

// accepted ranges over what an Accept header names, and whether the client takes it: a
// quality of 0 says that it does not.
func accepted(h http.Header, name string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, value := range h.Values(name) {
			for part := range strings.SplitSeq(value, ",") {
				what, parameters, _ := strings.Cut(part, ";")
				wanted := true
				for parameter := range strings.SplitSeq(strings.ReplaceAll(parameters, " ", ""), ";") {
					if q, ok := strings.CutPrefix(parameter, "q="); ok {
						weight, err := strconv.ParseFloat(q, 64)
						wanted = err != nil || weight > 0
					}
				}
				if !yield(strings.ToLower(strings.TrimSpace(what)), wanted) {
					return
				}
			}
		}
	}
}

// appendText appends the family in the text format.
func (f *family) appendText(b []byte) []byte {
	b = append(append(b, "# HELP "...), f.name...)
	b = append(appendEscaped(append(b, ' '), f.desc.Help, false), "\n# TYPE "...)
	b = append(b, f.name...)
	if f.desc.Type == Counter {
		b = append(b, " counter\n"...)
	} else {
		b = append(b, " gauge\n"...)
	}
	for _, r := range f.rows {
		b = append(append(b, r.series...), ' ')
		b = append(appendValue(b, r.point.Value), '\n')
	}
	return b
}

// appendValue appends a finite number as expfmt does; a small whole one, as most
// are, the fast way.
func appendValue(b []byte, v float64) []byte {
	if n := int64(v); v > -1e6 && v < 1e6 && float64(n) == v {
		return strconv.AppendInt(b, n, 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// seriesText is the name and the labels of a series in the text format.
func seriesText(name string, labels []*dto.LabelPair) string {
	b := []byte(name)
	for i, l := range labels {
		b = append(append(b, "{,"[min(i, 1)]), *l.Name...)
		b = append(appendEscaped(append(b, '=', '"'), *l.Value, true), '"')
	}
	if len(labels) > 0 {
		b = append(b, '}')
	}
	return string(b)
}

// appendEscaped appends a text with its backslashes and newlines, and where it is
// quoted its quotes, escaped.
func appendEscaped(b []byte, s string, quoted bool) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\\', c == '"' && quoted:
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return b
}
