// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

// Question is what GET /api/v1/explain asks. One of Node, GPU, Rack, Alert and
// Job is set.
type Question struct {
	Node, GPU, Rack, Alert, Job string
	// Labels narrow an alert.
	Labels map[string]string
	// From and To bound what is to be explained; a zero From: some time before To.
	From, To time.Time
}

// Explanation is an answer in its forms; as JSON it is itself.
type Explanation interface {
	Text(w io.Writer) error
	Markdown(w io.Writer) error
	Brief(w io.Writer) error
	// Because is the evidence for the cause that is named, Next what to do.
	Because() []string
	Next() []string
}

// ErrStore marks an error of Deps.Explain that is the store's, not the question's.
var ErrStore = errors.New("the store cannot be read")

const (
	// explainTimeout bounds one explanation; it asks about a dozen queries.
	explainTimeout = 20 * time.Second
	// maxExplanation bounds an answer, bytes.
	maxExplanation = 4 << 20
	// explainEach and explainBurst say how many explanations are made: each costs
	// the store about as much as a dashboard.
	explainEach  = time.Second
	explainBurst = 10
	// explainGrain is what "now" is rounded up to, so that those who ask together
	// get one answer, of the newest data.
	explainGrain = 5 * time.Second
	// maxAsked bounds a name that is asked about, bytes.
	maxAsked = 253
)

// explainer makes explanations, each once for all who ask it at a time.
type explainer struct {
	flight singleflight.Group
	rate   *rate.Limiter
}

func newExplainer() *explainer {
	return &explainer{rate: rate.NewLimiter(rate.Every(explainEach), explainBurst)}
}

// Explains says whether GET /api/v1/explain is offered.
func (r *Registry) Explains() bool { return r.deps.Explain != nil }

// errBusy is the answer to more questions than are taken.
var errBusy = errors.New("too many explanations are asked for; ask again in a few seconds")

// serveExplain answers GET /api/v1/explain.
func (r *Registry) serveExplain(w http.ResponseWriter, req *http.Request) {
	if r.deps.Explain == nil {
		writeError(w, http.StatusNotFound, errors.New("this registry reads no store: set prometheus.url"))
		return
	}
	q, err := parseQuestion(req, time.Now())
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	form, err := formOf(req)
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	got, err := r.Explain(req.Context(), q)
	var body bytes.Buffer
	if err == nil {
		err = form.write(got, &body)
	}
	switch {
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", strconv.Itoa(int(explainGrain/time.Second)))
		writeError(w, http.StatusTooManyRequests, err)
	case errors.Is(err, context.DeadlineExceeded):
		writeError(w, http.StatusGatewayTimeout, err)
	case errors.Is(err, ErrStore):
		writeError(w, http.StatusBadGateway, err)
	case err != nil:
		writeError(w, http.StatusUnprocessableEntity, err)
	case body.Len() > maxExplanation:
		writeError(w, http.StatusUnprocessableEntity, fmt.Errorf("the answer has %d bytes, at most %d are sent; ask about less", body.Len(), maxExplanation))
	default:
		w.Header().Set("Content-Type", form.contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(body.Bytes())
	}
}

// Explain answers a question, which must be one that Explains offers; those who ask
// the same at a time share the answer. An error wraps ErrStore or is the question's,
// or says that too much is asked.
func (r *Registry) Explain(ctx context.Context, q Question) (Explanation, error) {
	key := fmt.Sprintf("%q", q)
	answer := r.explainer.flight.DoChan(key, func() (any, error) {
		if !r.explainer.rate.Allow() {
			return nil, errBusy
		}
		// It goes on for the others when the first goes away.
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
		defer cancel()
		return r.deps.Explain(own, q)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-answer:
		if a.Err != nil {
			return nil, a.Err
		}
		return a.Val.(Explanation), nil
	}
}

// parseQuestion reads the parameters of a question.
func parseQuestion(req *http.Request, now time.Time) (Question, error) {
	q := Question{Node: req.FormValue("node"), GPU: req.FormValue("gpu"), Rack: req.FormValue("rack"), Alert: req.FormValue("alert"), Job: req.FormValue("job")}
	given := 0
	for _, name := range []string{q.Node, q.GPU, q.Rack, q.Alert, q.Job} {
		if len(name) > maxAsked {
			return q, fmt.Errorf("a name of %d bytes, %d are the most", len(name), maxAsked)
		}
		if name != "" {
			given++
		}
	}
	if given != 1 {
		return q, errors.New("give one of node, gpu, rack, alert and job")
	}
	now = now.UTC().Truncate(explainGrain).Add(explainGrain)
	var err error
	if q.From, err = parseSince(req.FormValue("from"), now); err != nil {
		return q, err
	}
	if q.To, err = parseSince(req.FormValue("to"), now); err != nil {
		return q, err
	}
	if text := req.FormValue("at"); text != "" {
		if !q.From.IsZero() || !q.To.IsZero() {
			return q, errors.New("give either at or from and to")
		}
		if q.To, err = parseSince(text, now); err != nil {
			return q, err
		}
		// What happened then shows a moment later.
		if q.To = q.To.Add(explainAfter); q.To.After(now) {
			q.To = now
		}
	}
	if q.To.IsZero() {
		q.To = now
	}
	return q, nil
}

// explainAfter is how much later than a time is looked: scrapes, evaluations and
// leases need it to show what happened then.
const explainAfter = 2 * time.Minute

// form is one form of an answer.
type form struct {
	name, contentType string
	write             func(Explanation, io.Writer) error
}

var forms = []form{
	{"json", "application/json", func(e Explanation, w io.Writer) error { return json.NewEncoder(w).Encode(e) }},
	{"markdown", "text/markdown; charset=utf-8", Explanation.Markdown},
	{"text", "text/plain; charset=utf-8", Explanation.Text},
	{"brief", "text/plain; charset=utf-8", Explanation.Brief},
}

// formOf chooses a form: by the parameter format, else by what Accept names
// first; a browser gets text, and who names nothing gets JSON.
func formOf(req *http.Request) (form, error) {
	name := req.FormValue("format")
	if name == "" {
		for part := range strings.SplitSeq(req.Header.Get("Accept"), ",") {
			media, _, _ := strings.Cut(strings.TrimSpace(part), ";")
			if name = acceptable[strings.ToLower(media)]; name != "" {
				break
			}
		}
	}
	name = cmp.Or(name, "json")
	for _, f := range forms {
		if f.name == name {
			return f, nil
		}
	}
	return form{}, fmt.Errorf("format %q is none of json, markdown, text, brief", name)
}

var acceptable = map[string]string{
	"application/json": "json", "text/markdown": "markdown", "text/plain": "text", "text/html": "text",
}
