// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
)

// neverStale is an interval for points that do not age.
const neverStale = time.Duration(1<<63 - 1)

// unknownRune stands for bytes of a label value that are not UTF-8.
const unknownRune = "\uFFFD"

// page is the rendered state of a Store. It is immutable.
type page struct {
	families []*family // sorted by name
	expires  time.Time // a point becomes stale after this
	once     sync.Once
	gathered []*dto.MetricFamily // made when first asked for: the text format needs none
}

// family is one family of a page, or one of another gatherer.
type family struct {
	name  string
	desc  *Desc
	rows  []*row
	other *dto.MetricFamily
}

// metricFamilies returns the families for others to encode.
func (p *page) metricFamilies() []*dto.MetricFamily {
	p.once.Do(func() {
		n := 0
		for _, f := range p.families {
			n += len(f.rows)
		}
		values := values{metrics: make([]dto.Metric, n), gauges: make([]dto.Gauge, n), counters: make([]dto.Counter, n)}
		for _, f := range p.families {
			typ := dto.MetricType_GAUGE
			if f.desc.Type == Counter {
				typ = dto.MetricType_COUNTER
			}
			mf := &dto.MetricFamily{Name: &f.desc.Name, Help: &f.desc.Help, Type: typ.Enum(), Metric: make([]*dto.Metric, len(f.rows))}
			for i, r := range f.rows {
				mf.Metric[i] = values.metric(r.point, r.labels)
			}
			p.gathered = append(p.gathered, mf)
		}
	})
	return p.gathered
}

// row is one point with all its labels.
type row struct {
	point  *Point
	labels []*dto.LabelPair
	// key tells the series apart from any other, whatever its label order.
	key     string
	series  string // name and labels in the text format
	reason  string // why it cannot be shown, or nothing
	counted bool   // the rejection has been counted
}

// build renders all entries. Rejections found on the way are counted once for
// each sample, and are on this very page already.
func (s *Store) build(now time.Time) *page {
	b := builder{
		store:    s,
		now:      now,
		expires:  now.Add(time.Hour),
		families: map[string]*family{},
		seen:     make(map[string]struct{}, s.series),
	}
	s.self.replace(selfSnapshot(s.statuses, s.simulated, now), now)
	b.add(&s.self, noIdentity)
	names := make([]string, 0, len(s.entries))
	for name := range s.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.add(s.entries[name], s.identity)
	}
	s.tail.replace(rejectedSnapshot(s.rejected, now), now)
	b.add(&s.tail, noIdentity)

	families := make([]*family, 0, len(b.families))
	for _, f := range b.families {
		families = append(families, f)
	}
	slices.SortFunc(families, func(x, y *family) int { return strings.Compare(x.name, y.name) })
	s.series = len(b.seen)
	return &page{families: families, expires: b.expires}
}

// builder collects the families of one page.
type builder struct {
	store    *Store
	now      time.Time
	expires  time.Time
	families map[string]*family
	seen     map[string]struct{} // keys of the series on the page
}

// add puts the entry's rows on the page.
func (b *builder) add(e *entry, id *identity) {
	e.render(id)
	limit := e.limit()
	for i := range e.rows {
		r := &e.rows[i]
		left := limit - e.age(r.point, b.now)
		if left < 0 {
			continue
		}
		reason := r.reason
		if reason == "" {
			reason = b.addRow(r)
		}
		if reason != "" {
			if !r.counted {
				r.counted = true
				b.store.rejected[rejection{r.point.Desc.Name, reason}]++
			}
			continue
		}
		if end := b.now.Add(left); end.Before(b.expires) {
			b.expires = end
		}
	}
}

// addRow puts one row on the page, or returns why it cannot.
func (b *builder) addRow(r *row) string {
	d := r.point.Desc
	f := b.families[d.Name]
	if f != nil && f.desc.Type != d.Type {
		return rejectType
	}
	if _, ok := b.seen[r.key]; ok {
		return rejectDuplicate
	}
	b.seen[r.key] = struct{}{}
	if f == nil {
		f = &family{name: d.Name, desc: d}
		b.families[d.Name] = f
	}
	f.rows = append(f.rows, r)
	return ""
}

// render makes the entry's rows. The labels of a series that the previous
// snapshot had in the same place are taken over, so that a scrape of a new
// snapshot with the same series makes no strings.
func (e *entry) render(id *identity) {
	if e.rendered && e.identity == id {
		return
	}
	old, sameLabels, samePoints := e.rows, e.identity == id, e.rendered
	rows := make([]row, len(e.kept))
	labels := labeller{identity: id}
	for i, p := range e.kept {
		r := &rows[i]
		if sameLabels && i < len(old) && sameSeries(old[i].point, p) {
			*r = row{labels: old[i].labels, key: old[i].key, series: old[i].series, reason: old[i].reason}
		} else {
			r.labels, r.reason = labels.of(p)
			r.key = seriesKey(p.Desc.Name, r.labels)
			r.series = seriesText(p.Desc.Name, r.labels)
		}
		r.point, r.counted = p, samePoints && old[i].counted
	}
	e.rows, e.rendered, e.identity = rows, true, id
}

func sameSeries(a, b *Point) bool {
	return a.Desc == b.Desc && a.Subject == b.Subject && slices.Equal(a.Values, b.Values)
}

// values hands out dto metrics from slabs: three allocations for a page.
type values struct {
	metrics  []dto.Metric
	gauges   []dto.Gauge
	counters []dto.Counter
}

// metric returns a metric that shows the point's value in place.
func (v *values) metric(p *Point, labels []*dto.LabelPair) *dto.Metric {
	m := &v.metrics[0]
	v.metrics = v.metrics[1:]
	m.Label = labels
	if p.Desc.Type == Counter {
		m.Counter, v.counters = &v.counters[0], v.counters[1:]
		m.Counter.Value = &p.Value
	} else {
		m.Gauge, v.gauges = &v.gauges[0], v.gauges[1:]
		m.Gauge.Value = &p.Value
	}
	return m
}

// labeller makes the label pairs of points; equal pairs are made once.
type labeller struct {
	identity *identity
	pairs    map[[2]string]*dto.LabelPair
}

// of returns the labels of a point: those of its Desc in their order, then the
// identity's, which give way to a Desc's label of the same name. Labels without
// a value are left out. The reason is set when the point cannot be shown.
func (l *labeller) of(p *Point) (labels []*dto.LabelPair, reason string) {
	d := p.Desc
	if len(p.Values) != len(d.Labels) || !validNames(d) {
		return nil, rejectLabels
	}
	extra, known := l.identity.of(p.Subject)
	if !known && !slices.Contains(d.Labels, "device") {
		return nil, rejectUnknownDevice
	}
	labels = make([]*dto.LabelPair, 0, len(d.Labels)+len(extra))
	for i, name := range d.Labels {
		if p.Values[i] != "" {
			labels = append(labels, l.pair(name, p.Values[i]))
		}
	}
	for _, pair := range extra {
		if !slices.Contains(d.Labels, pair.GetName()) {
			labels = append(labels, pair)
		}
	}
	return labels, ""
}

func (l *labeller) pair(name, value string) *dto.LabelPair {
	if pair := l.pairs[[2]string{name, value}]; pair != nil {
		return pair
	}
	if l.pairs == nil {
		l.pairs = map[[2]string]*dto.LabelPair{}
	}
	pair := newPair(name, value)
	l.pairs[[2]string{name, value}] = pair
	return pair
}

// newPair copies the strings, so that a page does not keep a source's buffers.
func newPair(name, value string) *dto.LabelPair {
	name, value = strings.Clone(name), strings.ToValidUTF8(strings.Clone(value), unknownRune)
	return &dto.LabelPair{Name: &name, Value: &value}
}

// validNames checks the names that a Desc brings along.
func validNames(d *Desc) bool {
	if !model.LegacyValidation.IsValidMetricName(d.Name) {
		return false
	}
	for i, name := range d.Labels {
		if !model.LegacyValidation.IsValidLabelName(name) || slices.Contains(d.Labels[:i], name) {
			return false
		}
	}
	return true
}

// seriesKey is a series' name and its labels in the order of their names.
func seriesKey(name string, labels []*dto.LabelPair) string {
	sorted := slices.Clone(labels)
	slices.SortFunc(sorted, func(a, b *dto.LabelPair) int { return strings.Compare(*a.Name, *b.Name) })
	var b strings.Builder
	b.WriteString(name)
	for _, l := range sorted {
		b.WriteByte(0xff) // not in UTF-8, so the parts cannot run together
		b.WriteString(*l.Name)
		b.WriteByte(0xff)
		b.WriteString(*l.Value)
	}
	return b.String()
}
