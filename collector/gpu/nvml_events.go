// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

const (
	// eventWait is how long one wait for driver errors lasts; the end of the
	// source waits for it.
	eventWait = 300 * time.Millisecond
	// eventPause is the pause after a wait that failed, as all do while a GPU of
	// the set is lost.
	eventPause = time.Second
)

var eventSymbols = []string{"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait", "nvmlDeviceRegisterEvents"}

// nvmlEvents collects the driver errors that NVML reports.
type nvmlEvents struct {
	set    nvml.EventSet
	uuids  map[nvml.Device]string // after an XID 79 the GPU itself cannot tell
	logger log.Logger
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	pending []XID
}

// listen sees that the events of all GPUs that answer are waited for. Without
// them the source goes on; XIDs are missing then.
func (s *nvmlSource) listen() {
	var devices []nvml.Device
	uuids := make(map[nvml.Device]string)
	for _, g := range s.gpus {
		if g.handle != nil && g.lost == "" {
			devices = append(devices, g.handle)
			uuids[g.handle] = g.device.UUID
		}
	}
	if slices.Equal(devices, s.listening) {
		return
	}
	s.stopEvents()
	s.listening = devices
	if len(devices) == 0 {
		return
	}
	for _, symbol := range eventSymbols {
		if !s.has(symbol) {
			level.Info(s.logger).Log("msg", "no XID events from this NVML", "missing", symbol)
			return
		}
	}
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		level.Info(s.logger).Log("msg", "no XID events from NVML", "err", ret)
		return
	}
	registered := 0
	for _, d := range devices {
		if ret := d.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
			level.Info(s.logger).Log("msg", "no XID events of a GPU", "err", ret)
			continue
		}
		registered++
	}
	if registered == 0 {
		set.Free()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.events = &nvmlEvents{set: set, uuids: uuids, logger: s.logger, cancel: cancel, done: make(chan struct{})}
	go s.events.run(ctx)
}

// stopEvents ends the waiting; what was not taken yet is kept for the next pass.
func (s *nvmlSource) stopEvents() {
	s.listening = nil
	e := s.events
	if e == nil {
		return
	}
	s.events = nil
	e.cancel()
	<-e.done
	s.xids = append(s.xids, e.take()...)
}

// run waits for events until ctx is done.
func (e *nvmlEvents) run(ctx context.Context) {
	defer close(e.done)
	defer e.set.Free()
	told := false
	for ctx.Err() == nil {
		data, ret := e.set.Wait(uint32(eventWait.Milliseconds()))
		switch ret {
		case nvml.SUCCESS:
			e.put(data)
		case nvml.ERROR_TIMEOUT:
		default:
			if !told {
				told = true
				level.Info(e.logger).Log("msg", "waiting for XID events", "err", ret)
			}
			select {
			case <-ctx.Done():
			case <-time.After(eventPause):
			}
		}
	}
}

func (e *nvmlEvents) put(data nvml.EventData) {
	if data.EventType != nvml.EventTypeXidCriticalError {
		return
	}
	uuid, ok := e.uuids[data.Device]
	if !ok {
		var ret nvml.Return
		if uuid, ret = data.Device.GetUUID(); ret != nvml.SUCCESS {
			level.Warn(e.logger).Log("msg", "XID of an unknown GPU", "xid", data.EventData, "err", ret)
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.pending) < maxPendingXIDs {
		e.pending = append(e.pending, XID{UUID: uuid, Code: int(data.EventData), At: time.Now()})
	}
}

func (e *nvmlEvents) take() []XID {
	e.mu.Lock()
	defer e.mu.Unlock()
	events := e.pending
	e.pending = nil
	return events
}

// takeXIDs returns the driver errors since the last pass.
func (s *nvmlSource) takeXIDs() []XID {
	events := s.xids
	s.xids = nil
	if s.events != nil {
		events = append(events, s.events.take()...)
	}
	return events
}
