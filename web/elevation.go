// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"

	"github.com/rackpulse/rackpulse/registry"
)

// Geometry of an elevation, in SVG units (CSS pixels at full size).
const (
	unitHeight = 11  // one rack unit
	railWidth  = 20  // with the unit numbers
	innerWidth = 256 // between the rails
	maxUnits   = 60  // taller racks are not built; a typo must not blow up the page
	digitWidth = 17  // a cell that holds two digits
	labelWidth = 84  // the name in a box of one line
	stateWidth = 14  // the shape in a box of one line
)

// elevation is a rack's front as a drawing.
type elevation struct {
	Width, Height, HeightU int
	Units                  []unit
	Boxes                  []box
}

// Left is where the frame begins.
func (elevation) Left() float64 { return railWidth - 0.5 }

// Inner is the frame's width.
func (elevation) Inner() int { return innerWidth + 1 }

// RailX is where the unit numbers end.
func (elevation) RailX() int { return railWidth - 5 }

// unit is one number on the rail.
type unit struct{ U, Y int }

// box is one node in the drawing. Geometry is in SVG units; the cells' X is
// absolute, Y and heights are the box's.
type box struct {
	ID, Title    string
	Mark         stateMark
	X, Y, W, H   int
	NameX        int
	LeaseX       int
	Small        bool // one line: no state word, no digits
	NameY, CellY int
	CellH, TextY int
	NoteY        int
	Note         string
	Digits       bool
	Cells        []gpu
}

// placed says whether a node can be drawn in a rack of so many units.
func placed(n registry.NodeView, heightU int) bool {
	return n.U >= 1 && n.U+max(n.HeightU, 1)-1 <= heightU
}

func newElevation(r registry.RackView, h heat) elevation {
	e := elevation{HeightU: r.HeightU}
	if e.HeightU < 1 { // not declared: as tall as what stands in it
		for _, n := range r.Nodes {
			e.HeightU = max(e.HeightU, n.U+max(n.HeightU, 1)-1)
		}
	}
	e.HeightU = min(e.HeightU, maxUnits)
	e.Width, e.Height = railWidth+innerWidth+2, e.HeightU*unitHeight+2
	for u := 1; u <= e.HeightU; u++ {
		if u == 1 || u%4 == 0 {
			e.Units = append(e.Units, unit{u, e.top(u, 1) + unitHeight - 2})
		}
	}
	for _, n := range r.Nodes {
		if placed(n, e.HeightU) {
			e.Boxes = append(e.Boxes, e.box(n, h))
		}
	}
	return e
}

// top is the upper edge of something that starts at unit u, units counted from
// the floor.
func (e elevation) top(u, heightU int) int {
	return (e.HeightU-(u+heightU-1))*unitHeight + 1
}

func (e elevation) box(n registry.NodeView, h heat) box {
	heightU := max(n.HeightU, 1)
	b := box{ID: n.ID, Mark: markOf(n.State), X: railWidth + 1, Y: e.top(n.U, heightU), W: innerWidth - 2, H: heightU*unitHeight - 1, Cells: newGPUs(n, h)}
	b.NameX, b.LeaseX = b.X+8, b.X+b.W-5
	b.Title = fmt.Sprintf("%s, %s, unit %d, %d GPUs", n.ID, b.Mark.Word, n.U, len(n.GPUs))
	if noteworthy(n) {
		b.Title += ": " + n.Reason
	}
	left, width := b.NameX, b.W-14
	if b.Small = b.H < 3*unitHeight; b.Small {
		b.NameY = b.Y + (b.H+8)/2
		b.CellH = min(b.H-4, 14)
		b.CellY = b.Y + (b.H-b.CellH)/2
		left, width = left+labelWidth, width-labelWidth-stateWidth
	} else {
		b.NameY = b.Y + 14
		b.CellY = b.Y + 20
		b.CellH = min(b.H-26, 34)
		if b.NoteY = b.CellY + b.CellH + 15; noteworthy(n) && b.NoteY < b.Y+b.H-3 {
			b.Note = shorten(n.Reason, 44)
		}
	}
	b.spread(left, width)
	b.TextY = b.CellY + (b.CellH+8)/2
	return b
}

// noteworthy says whether why a node is in its state is worth the place: that a
// node is ready needs no reason.
func noteworthy(n registry.NodeView) bool { return n.Reason != "" && n.State != "READY" }

// spread shares the width among the cells, as wide as eight of them at most.
func (b *box) spread(left, width int) {
	if len(b.Cells) == 0 {
		return
	}
	pitch := min(width/len(b.Cells), width/8)
	gap := min(2, max(pitch-2, 0))
	for i := range b.Cells {
		b.Cells[i].X, b.Cells[i].W = left+i*pitch, max(pitch-gap, 1)
	}
	b.Digits = pitch-gap >= digitWidth && b.CellH >= 11
}

func shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}
