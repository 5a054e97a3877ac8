// SPDX-License-Identifier: Apache-2.0

// Package site holds the nouns of a GPU hall (racks, feeds, PDUs, nodes, ...),
// the graph that joins them, their labels, and the limits that apply to them.
// It imports nothing else of RackPulse.
package site

// Site is one validated site file. All slices are in file order; node ranges
// are expanded, so Nodes has one element per node. A Site is immutable once
// loaded and safe for concurrent readers.
type Site struct {
	ID           string        `yaml:"-"`
	Rooms        []Room        `yaml:"rooms"`
	Rows         []Row         `yaml:"rows"`
	Feeds        []Feed        `yaml:"feeds"`
	Racks        []Rack        `yaml:"racks"`
	PDUs         []PDU         `yaml:"pdus"`
	UPSs         []UPS         `yaml:"upss"`
	CoolingUnits []CoolingUnit `yaml:"cooling_units"`
	Switches     []Switch      `yaml:"switches"`
	Sensors      []Sensor      `yaml:"sensors"`
	Meters       []Meter       `yaml:"meters"`
	NodeClasses  []NodeClass   `yaml:"node_classes"`
	Nodes        []Node        `yaml:"nodes"`
	// Limits are the built-in limits.yml with the site file's overrides applied.
	Limits *Limits `yaml:"-"`

	index *index
}

// Room is a hall or data room.
type Room struct {
	ID string `yaml:"id"`
	// ASHRAEClass is the thermal class of its equipment, such as A2 or H1;
	// empty means A2.
	ASHRAEClass string `yaml:"ashrae_class"`
}

// Row is a row of racks in a room.
type Row struct {
	ID   string `yaml:"id"`
	Room string `yaml:"room"`
}

// Feed is one electrical supply (a busway, an RPP, a UPS output) that PDUs hang on.
type Feed struct {
	ID           string  `yaml:"id"`
	LineVolts    float64 `yaml:"line_volts"`    // line to line, volts
	RatedAmperes float64 `yaml:"rated_amperes"` // per line, amperes
	// Derate is the usable share of the rating, 0..1; 0.8 when not declared, the
	// NEC's share for continuous loads (210.20(A)). 1 suits 100 % rated breakers.
	Derate float64 `yaml:"derate"`
}

// Rack is one cabinet.
type Rack struct {
	ID              string  `yaml:"id"`
	Row             string  `yaml:"row"`
	HeightU         int     `yaml:"height_u"`          // rack units; 42 (the common EIA-310 cabinet) when not declared
	PowerLimitWatts float64 `yaml:"power_limit_watts"` // watts; 0: not declared
}

// PDU is one rack power distribution unit.
type PDU struct {
	ID           string  `yaml:"id"`
	Rack         string  `yaml:"rack"`
	Feed         string  `yaml:"feed"`          // optional: not known
	Phases       int     `yaml:"phases"`        // 1 or 3
	RatedAmperes float64 `yaml:"rated_amperes"` // per line, amperes
	Outlets      int     `yaml:"outlets"`       // number of outlets; 0: not declared
	// Exporters maps the job name of a foreign exporter that reads it to the
	// host:port that the exporter is told.
	Exporters map[string]string `yaml:"exporters"`
}

// UPS is one uninterruptible supply.
type UPS struct {
	ID   string `yaml:"id"`
	Rack string `yaml:"rack"` // optional
	Feed string `yaml:"feed"` // optional: the feed it backs
}

// CoolingUnit is a CRAC, CRAH, in-row cooler or CDU.
type CoolingUnit struct {
	ID     string   `yaml:"id"`
	Room   string   `yaml:"room"`
	Serves []string `yaml:"serves"` // rack ids; hostlist ranges are expanded
	// Exporters is as a PDU's.
	Exporters map[string]string `yaml:"exporters"`
}

// Switch is a network switch.
type Switch struct {
	ID   string `yaml:"id"`
	Rack string `yaml:"rack"`
	U    int    `yaml:"u"`
	// Exporters is as a PDU's.
	Exporters map[string]string `yaml:"exporters"`
}

// Sensor is an environmental sensor.
type Sensor struct {
	ID       string `yaml:"id"`
	Rack     string `yaml:"rack"`     // optional for leak sensors
	Row      string `yaml:"row"`      // optional: the row of a sensor without a rack
	Measures string `yaml:"measures"` // inlet_temperature, outlet_temperature, inlet_humidity, leak
	Position string `yaml:"position"` // top, middle, bottom or free text
}

// Meter is a building meter.
type Meter struct {
	ID   string `yaml:"id"`
	Role string `yaml:"role"` // it, cooling, total, ...
}

// NodeClass is a model of server.
type NodeClass struct {
	ID       string   `yaml:"id"`
	HeightU  int      `yaml:"height_u"`
	GPUs     int      `yaml:"gpus"`      // expected count; 0: no GPU
	GPUModel string   `yaml:"gpu_model"` // as NVML reports it
	Rackless bool     `yaml:"rackless"`  // nodes of this class live outside racks
	Baseline Baseline `yaml:"baseline"`
}

// Node is one server.
type Node struct {
	ID      string   `yaml:"id"`
	Rack    string   `yaml:"rack"` // empty: rackless
	U       int      `yaml:"u"`    // lowest rack unit; 0: not declared
	Class   string   `yaml:"class"`
	Outlets []string `yaml:"outlets"` // "PDU/OUTLET"
	Ports   []string `yaml:"ports"`   // "SWITCH/PORT"
	Address string   `yaml:"address"` // host or IP for foreign exporters; empty: the advertised one
	// Exporters maps a foreign exporter's job name to its host:port.
	Exporters map[string]string `yaml:"exporters"`
	Tenant    string            `yaml:"tenant"`
}

// Kinds of entities in the graph.
const (
	KindSite    = "site"
	KindRoom    = "room"
	KindRow     = "row"
	KindFeed    = "feed"
	KindRack    = "rack"
	KindPDU     = "pdu"
	KindUPS     = "ups"
	KindCooling = "cooling_unit"
	KindSwitch  = "switch"
	KindSensor  = "sensor"
	KindMeter   = "meter"
	KindClass   = "node_class"
	KindNode    = "node"
)

// Entity names one thing of the site: a kind (see the Kind constants) and its id.
type Entity struct{ Kind, ID string }

// Device is a facility device as drivers and labels see it: a PDU, UPS, cooling
// unit, switch, sensor or meter.
type Device struct {
	Entity
	// Rack is the rack it stands in, or empty.
	Rack string
	// Labels are the identity labels of all its series, by DESIGN contract:
	// pdu: pdu_id, rack_id; sensor: sensor, rack_id, position; switch: switch,
	// rack_id; cooling_unit: cooling_unit; ups: ups[, rack_id]; meter: meter, role.
	// Labels without a value are left out.
	Labels map[string]string
	// Exporters are its addresses for foreign exporters by job name.
	Exporters map[string]string
}
