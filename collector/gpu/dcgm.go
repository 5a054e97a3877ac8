// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// load_library returns NULL, or why not, to be freed. dlerror tells of its own
// thread only, so it must be asked in the same call from Go.
static char *load_library(const char *name)
{
	const char *why;
	if (dlopen(name, RTLD_LAZY | RTLD_GLOBAL))
		return NULL;
	why = dlerror();
	return strdup(why ? why : "not loaded");
}
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

func init() {
	register(registration{name: "dcgm", priority: 10, child: true, open: openDCGM})
}

const dcgmLibrary = "libdcgm.so.4"

// dcgmNoHangDetection is the variable that keeps DCGM from watching its own threads.
const dcgmNoHangDetection = "DCGM_HANGDETECT_DISABLE"

// dcgmRequired are the functions that this source cannot do without. They are
// checked before the first call, because calling one that the library lacks ends
// the process (exit status 127); so does calling an optional one unchecked.
var dcgmRequired = []string{
	"dcgmInit", "dcgmShutdown", "errorString", "DcgmFieldsInit", "DcgmFieldGetById",
	"dcgmGetAllSupportedDevices", "dcgmGetEntityGroupEntities", "dcgmGetGpuStatus",
	"dcgmGroupCreate", "dcgmGroupDestroy", "dcgmGroupAddEntity",
	"dcgmFieldGroupCreate", "dcgmFieldGroupDestroy",
	"dcgmWatchFields", "dcgmUnwatchFields", "dcgmUpdateAllFields", "dcgmEntitiesGetLatestValues",
}

const (
	// maxFieldGroup is DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP.
	maxFieldGroup = 128
	// staticInterval is how often DCGM refreshes names, serials and the like.
	staticInterval = 30 * time.Second
	// checkInterval is how often the list of GPUs is compared, migInterval how
	// often that of MIG instances is: it is 73 kB. Neither is longer than the
	// interval of the slow fields.
	checkInterval = 5 * time.Second
	migInterval   = 10 * time.Second
	// maxPendingXIDs bounds the driver errors between two passes.
	maxPendingXIDs = 1000
)

// DCGM's error codes (dcgm_structs.h) that are acted on.
const (
	dcgmConnectionNotValid = -21
	dcgmGPUIsLost          = -18
)

// dcgmSource reads the GPUs through go-dcgm. Its methods are called by one
// goroutine.
type dcgmSource struct {
	cfg    SourceConfig
	logger log.Logger
	fast   []dcgm.Short        // ids to read in every pass
	all    []dcgm.Short        // with those of the slow fields
	names  map[uint16][]string // their metric names
	labels map[uint16][]string // ids of label fields and their names

	cleanup  func() // nil: not connected
	reader   dcgmReader
	gpus     []*dcgmGPU
	entities []dcgm.GroupEntityPair // what is read, GPUs or GPU instances
	owners   map[dcgm.GroupEntityPair]*dcgmGPU
	unknown  []string // fields that this DCGM does not know
	ages     sampleAges
	watches  dcgmWatches
	driver   string
	checked  time.Time
	checkMIG time.Time
	mig      string // fingerprint of the instances

	aside  dcgmAside
	stuck  bool // one of aside's calls keeps the connection from being closed
	xids   dcgmXIDs
	slowAt time.Time // the slow fields were read at; zero: to be read at once
	procs  *processLoop
}

// dcgmGPU is one physical GPU.
type dcgmGPU struct {
	id        uint
	device    Device
	instances []dcgmInstance
	supported bool
	hadValues bool
	lost      bool
	empty     int             // passes in a row without a value
	refused   map[uint16]bool // fields that it does not have
	rejects   passRejects
	skipped   bool // nothing of it is read
}

// dcgmInstance is one MIG GPU instance.
type dcgmInstance struct {
	entity       dcgm.GroupEntityPair
	profile, gid string
	compute      []dcgm.GroupEntityPair // its compute instances
	skipped      bool                   // not read
}

// openDCGM loads the library, connects, and begins to watch. It fails where the
// library is missing or knows no GPU that DCGM supports.
func openDCGM(_ context.Context, cfg SourceConfig, logger log.Logger) (Source, error) {
	if err := loadDCGM(); err != nil {
		return nil, err
	}
	s := &dcgmSource{cfg: cfg, logger: logger, watches: dcgmWatches{logger: logger}, xids: newDCGMXIDs(logger)}
	s.names = s.fieldIDs(cfg.Fields)
	s.labels = s.fieldIDs(cfg.Labels)
	if err := s.connect(); err != nil {
		return nil, err
	}
	if len(s.gpus) == 0 {
		s.disconnect()
		return nil, errors.New("DCGM supports no GPU of this node")
	}
	s.procs = startProcessLoop(cfg.ProcessInterval)
	return s, nil
}

// Reconfigure implements reconfigurer: it takes over what cfg says of fields and
// intervals and watches anew, without leaving DCGM.
func (s *dcgmSource) Reconfigure(_ context.Context, cfg SourceConfig) error {
	if cfg.DCGMAddress != s.cfg.DCGMAddress {
		return errors.New("another host engine")
	}
	s.cfg = cfg
	s.names = s.fieldIDs(cfg.Fields)
	s.labels = s.fieldIDs(cfg.Labels)
	if s.cleanup == nil { // the next connect does the rest
		return nil
	}
	s.findFields()
	if !s.resetAside() {
		return errStuck
	}
	return s.enumerate()
}

// loadDCGM loads the library for the life of the process and checks what it has.
func loadDCGM() error {
	name := C.CString(dcgmLibrary)
	defer C.free(unsafe.Pointer(name))
	if why := C.load_library(name); why != nil {
		text := C.GoString(why)
		C.free(unsafe.Pointer(why))
		if strings.Contains(text, "No such file") {
			return errors.New(dcgmLibrary + " not found")
		}
		return errors.New(text)
	}
	for _, symbol := range dcgmRequired {
		if !dcgmHas(symbol) {
			return fmt.Errorf("%s lacks the function %s", dcgmLibrary, symbol)
		}
	}
	return nil
}

// dcgmHas tells whether the loaded library has a function.
func dcgmHas(symbol string) bool {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	return C.dlsym(nil, name) != nil // nil: RTLD_DEFAULT, the global scope
}

// fieldIDs resolves metric names; two names may stand for one field.
func (s *dcgmSource) fieldIDs(metrics []string) map[uint16][]string {
	ids := make(map[uint16][]string, len(metrics))
	for _, metric := range metrics {
		if f, ok := fieldNames()[metric]; ok {
			ids[f.id] = append(ids[f.id], metric)
		}
	}
	return ids
}

// connect starts or joins the host engine and sets the watches up.
func (s *dcgmSource) connect() error {
	cleanup, err := dcgmInit(s.cfg.DCGMAddress)
	if err != nil {
		return err
	}
	s.cleanup = cleanup
	s.reader.use(s.cfg.DCGMAddress == "")
	dcgm.FieldsInit()
	s.findFields()
	s.aside = s.newAside()
	if err := s.enumerate(); err != nil {
		s.disconnect()
		return err
	}
	return nil
}

// dcgmInit runs DCGM in this process, or connects to an nv-hostengine. Before
// DCGM 4.5 the library takes no connection strings but an address and its kind.
func dcgmInit(address string) (func(), error) {
	if address == "" {
		// DCGM's watch over its own threads wakes 400 times a second, for a line in its
		// log: half of what it costs. The agent has a deadline for each pass.
		if _, ok := os.LookupEnv(dcgmNoHangDetection); !ok {
			_ = os.Setenv(dcgmNoHangDetection, "1") // it fails on a bad name only
		}
		return dcgm.Init(dcgm.Embedded)
	}
	if dcgmHas("dcgmConnect_v3") {
		return dcgm.Init(dcgm.Standalone, address)
	}
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return dcgm.Init(dcgm.Standalone, path, "1")
	}
	return dcgm.Init(dcgm.Standalone, strings.TrimPrefix(address, "tcp://"), "0")
}

// findFields sets the ids to read of GPUs, without those that DCGM does not know.
func (s *dcgmSource) findFields() {
	s.fast, s.unknown = nil, nil
	var slow []dcgm.Short
	if s.names[dcgmFieldXID] == nil {
		s.fast = append(s.fast, dcgmFieldXID) // read in any case, for the counts
	}
	for id, names := range s.names {
		meta, err := dcgm.FieldGetByID(dcgm.Short(id))
		if err != nil {
			level.Info(s.logger).Log("msg", "field unknown to this DCGM, left out", "field", names[0])
			s.unknown = append(s.unknown, names...)
			continue
		}
		switch meta.EntityLevel {
		case dcgm.FE_SWITCH, dcgm.FE_LINK, dcgm.FE_CPU, dcgm.FE_CPU_CORE:
			continue // dcgmEntities has it
		case dcgm.FE_CONNECTX:
			level.Info(s.logger).Log("msg", "field is not one of a GPU, left out", "field", names[0], "entity", meta.EntityLevel)
			continue
		}
		if isSlow(names[0]) {
			slow = append(slow, dcgm.Short(id))
		} else {
			s.fast = append(s.fast, dcgm.Short(id))
		}
	}
	s.all = slices.Concat(s.fast, slow)
}

// disconnect gives everything back.
func (s *dcgmSource) disconnect() {
	if s.cleanup == nil {
		return
	}
	if s.stuck = !s.aside.end(asideGrace); s.stuck {
		return
	}
	s.xids.watches.end()
	s.aside.entities.watches.end()
	s.watches.end()
	s.cleanup()
	s.cleanup = nil
}

// Close implements Source.
func (s *dcgmSource) Close() error {
	s.procs.stop()
	s.disconnect()
	if s.stuck {
		return errStuck
	}
	return nil
}
