// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/value"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxRequestSamples is Prometheus' default of max_samples_per_send: receivers
// expect requests of that size.
const maxRequestSamples = 2000

// pushSeries is one series of a round.
type pushSeries struct {
	labels []string // name, value, name, value, ... sorted by name
	value  float64
	typ    dto.MetricType
	help   string
}

// round gathers the series as a scrape would see them, `up` included, and adds
// stale markers for those of the round before that are gone.
func (p *Pusher) round(now time.Time) (at int64, round []pushSeries) {
	families, _ := merged{p.cfg.Store, p.cfg.Extra}.Gather() // a part that fails is left out, as on /metrics
	current := make(map[string]pushSeries, len(p.previous))
	add := func(s pushSeries) {
		key := strings.Join(s.labels, "\xff")
		if _, ok := current[key]; !ok {
			current[key] = s
			round = append(round, s)
		}
	}
	add(p.up(1))
	for _, f := range families {
		for _, m := range f.Metric {
			flatten(f, m, func(name string, v float64, extra ...string) {
				add(pushSeries{labels: p.labels(name, m.Label, extra), value: v, typ: f.GetType(), help: f.GetHelp()})
			})
		}
	}
	for key, s := range p.previous {
		if _, ok := current[key]; !ok {
			s.value = math.Float64frombits(value.StaleNaN)
			round = append(round, s)
		}
	}
	p.previous = current
	return p.timestamp(now), round
}

// lastRound ends all series but `up`, which becomes 0, as it does for a target
// that cannot be scraped any more.
func (p *Pusher) lastRound(now time.Time) (at int64, round []pushSeries) {
	up := p.up(0)
	delete(p.previous, strings.Join(up.labels, "\xff"))
	round = append(round, up)
	for _, s := range p.previous {
		s.value = math.Float64frombits(value.StaleNaN)
		round = append(round, s)
	}
	p.previous = nil
	return p.timestamp(now), round
}

// timestamp is now in ms, and never that of the round before, which a receiver
// would take for a duplicate.
func (p *Pusher) timestamp(now time.Time) int64 {
	at := now.UnixMilli()
	if at == p.last {
		at++
	}
	p.last = at
	return at
}

// up is the series that Prometheus makes itself for a target that it scrapes.
func (p *Pusher) up(v float64) pushSeries {
	return pushSeries{labels: p.labels("up", nil, nil), value: v, typ: dto.MetricType_GAUGE, help: "Whether the agent pushes (1) or has ended (0)."}
}

// labels joins the labels of a series with the target labels that it lacks, as
// honor_labels does: an empty label keeps the target's out and is then left out
// itself. The shared pairs are only read.
func (p *Pusher) labels(name string, pairs []*dto.LabelPair, extra []string) []string {
	type label struct{ name, value string }
	all := make([]label, 0, 1+len(pairs)+len(extra)/2+len(p.cfg.Labels))
	all = append(all, label{model.MetricNameLabel, name})
	for i := 0; i < len(extra); i += 2 {
		all = append(all, label{extra[i], extra[i+1]})
	}
	for _, l := range pairs {
		all = append(all, label{l.GetName(), l.GetValue()})
	}
	own := all
	for n, v := range p.cfg.Labels {
		if !slices.ContainsFunc(own, func(l label) bool { return l.name == n }) {
			all = append(all, label{n, v})
		}
	}
	slices.SortFunc(all, func(a, b label) int { return strings.Compare(a.name, b.name) })
	flat := make([]string, 0, 2*len(all))
	for _, l := range all {
		if l.value != "" {
			flat = append(flat, l.name, l.value)
		}
	}
	return flat
}

// flatten emits the series of one metric by the names of the text format.
func flatten(f *dto.MetricFamily, m *dto.Metric, emit func(name string, v float64, extra ...string)) {
	name := f.GetName()
	switch {
	case m.Gauge != nil:
		emit(name, m.Gauge.GetValue())
	case m.Counter != nil:
		emit(name, m.Counter.GetValue())
	case m.Untyped != nil:
		emit(name, m.Untyped.GetValue())
	case m.Summary != nil:
		for _, q := range m.Summary.Quantile {
			emit(name, q.GetValue(), model.QuantileLabel, boundText(q.GetQuantile()))
		}
		emit(name+"_sum", m.Summary.GetSampleSum())
		emit(name+"_count", float64(m.Summary.GetSampleCount()))
	case m.Histogram != nil:
		h := m.Histogram
		count := cmp.Or(h.GetSampleCountFloat(), float64(h.GetSampleCount()))
		for _, b := range h.Bucket {
			if !math.IsInf(b.GetUpperBound(), 1) {
				n := cmp.Or(b.GetCumulativeCountFloat(), float64(b.GetCumulativeCount()))
				emit(name+"_bucket", n, model.BucketLabel, boundText(b.GetUpperBound()))
			}
		}
		emit(name+"_bucket", count, model.BucketLabel, "+Inf")
		emit(name+"_sum", h.GetSampleSum())
		emit(name+"_count", count)
	}
}

// boundText writes a bucket's bound or a quantile as Prometheus does when it
// scrapes: with a point, as OpenMetrics has it.
func boundText(v float64) string {
	text := strconv.FormatFloat(v, 'g', -1, 64) // +Inf and NaN as they must be
	if !strings.ContainsAny(text, "e.IN") {
		text += ".0"
	}
	return text
}

// encodedPush is an encoded message. It has the methods by which remote.API
// takes messages of any kind.
type encodedPush []byte

// Size is the length in bytes.
func (e encodedPush) Size() int { return len(e) }

// MarshalToSizedBuffer copies the message to a buffer of at least that length.
func (e encodedPush) MarshalToSizedBuffer(buf []byte) (int, error) { return copy(buf, e), nil }

func pushMessageType(protocol string) remote.WriteMessageType {
	if protocol == PushV1 {
		return remote.WriteV1MessageType
	}
	return remote.WriteV2MessageType
}

// encodePush makes one message of series with one sample each; at is in ms.
func encodePush(protocol string, series []pushSeries, at int64) (encodedPush, error) {
	if protocol == PushV1 {
		return encodePushV1(series, at), nil
	}
	symbols := writev2.NewSymbolTable()
	req := &writev2.Request{Timeseries: make([]*writev2.TimeSeries, len(series))}
	for i, s := range series {
		req.Timeseries[i] = &writev2.TimeSeries{
			LabelsRefs: symbols.SymbolizeLabels(s.labels, nil),
			Samples:    []*writev2.Sample{{Value: s.value, Timestamp: at}},
			Metadata:   &writev2.Metadata{Type: pushType(s.typ), HelpRef: symbols.Symbolize(s.help)},
		}
	}
	req.Symbols = symbols.Symbols()
	data, err := req.MarshalVT()
	if err != nil {
		return nil, fmt.Errorf("remote write 2.0: %w", err)
	}
	return data, nil
}

func pushType(t dto.MetricType) writev2.Metadata_MetricType {
	switch t {
	case dto.MetricType_COUNTER:
		return writev2.Metadata_METRIC_TYPE_COUNTER
	case dto.MetricType_GAUGE:
		return writev2.Metadata_METRIC_TYPE_GAUGE
	case dto.MetricType_SUMMARY:
		return writev2.Metadata_METRIC_TYPE_SUMMARY
	case dto.MetricType_HISTOGRAM:
		return writev2.Metadata_METRIC_TYPE_HISTOGRAM
	}
	return writev2.Metadata_METRIC_TYPE_UNSPECIFIED
}

// Field numbers of prometheus.WriteRequest, TimeSeries, Label and Sample, from
// https://prometheus.io/docs/specs/prw/remote_write_spec/#protocol.
const (
	v1Timeseries = 1
	v1Labels     = 1
	v1Samples    = 2
	v1Name       = 1
	v1Value      = 2
	v1Sample     = 1
	v1Timestamp  = 2
)

func encodePushV1(series []pushSeries, at int64) encodedPush {
	var out, one, part []byte
	for _, s := range series {
		one = one[:0]
		for i := 0; i < len(s.labels); i += 2 {
			part = appendText(part[:0], v1Name, s.labels[i])
			part = appendText(part, v1Value, s.labels[i+1])
			one = appendMessage(one, v1Labels, part)
		}
		part = protowire.AppendTag(part[:0], v1Sample, protowire.Fixed64Type)
		part = protowire.AppendFixed64(part, math.Float64bits(s.value))
		part = protowire.AppendTag(part, v1Timestamp, protowire.VarintType)
		part = protowire.AppendVarint(part, uint64(at))
		one = appendMessage(one, v1Samples, part)
		out = appendMessage(out, v1Timeseries, one)
	}
	return out
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}
