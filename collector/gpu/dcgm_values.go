// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

/*
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// dcgmGroupEntityPair_t and dcgmFieldValue_v2 of dcgm_structs.h.
typedef struct {
	uint32_t group, entity;
} pair_t;

typedef struct {
	uint32_t version, group, entity;
	uint16_t field, type;
	int32_t status;
	uint32_t unused;
	int64_t ts;
	uint64_t value[512]; // a union of 4096 bytes; the first eight hold numbers
} value_t;

typedef int (*latest_t)(uintptr_t, pair_t *, unsigned, unsigned short *, unsigned, unsigned, value_t *);

static int latest(void *function, uintptr_t handle, pair_t *pairs, unsigned npairs, unsigned short *fields, unsigned nfields, value_t *values)
{
	return ((latest_t)function)(handle, pairs, npairs, fields, nfields, 0, values);
}
*/
import "C"

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// dcgmEmbedded is DCGM_EMBEDDED_HANDLE, the connection to DCGM in this process.
const dcgmEmbedded = 0x7fffffff

// dcgmValue is what is used of one of DCGM's values.
type dcgmValue struct {
	pair  dcgm.GroupEntityPair
	field uint16
	typ   uint   // dcgm.DCGM_FT_INT64 and so on
	bits  uint64 // of the number
	code  int    // dcgmReturn_t, 0: good
	ts    int64  // microseconds, 0: never
}

// maxRead is how many values one call of the library returns, 4 MB of them: those of
// eight GPUs at once. Each call costs DCGM the clearing of a message of 4 MB, whatever
// it is asked for (helperGetLatestValuesForFields in DCGM 4.6), so few are made.
const maxRead = 1024

// dcgmReader reads the latest values. go-dcgm's own function makes 4 kB of garbage
// for each value, which costs more than everything else in a pass; this one calls
// the library into memory that it keeps. go-dcgm does not tell its connections, but
// that to DCGM in the same process is known.
type dcgmReader struct {
	function unsafe.Pointer // nil: leave it to go-dcgm
	pairs    []C.pair_t
	values   []C.value_t
	result   []dcgmValue
}

// use prepares for a new connection.
func (r *dcgmReader) use(embedded bool) {
	r.function = nil
	if embedded {
		name := C.CString("dcgmEntitiesGetLatestValues")
		defer C.free(unsafe.Pointer(name))
		r.function = C.dlsym(nil, name)
	}
}

// read returns the values of all pairs, valid until the next call. Where the direct
// call fails go-dcgm has its try, and says why.
func (r *dcgmReader) read(pairs []dcgm.GroupEntityPair, ids []dcgm.Short) ([]dcgmValue, error) {
	r.result = r.result[:0]
	for some := range slices.Chunk(ids, maxFieldGroup) {
		before := len(r.result)
		if r.direct(pairs, some) {
			continue
		}
		r.result = r.result[:before]
		list, err := dcgm.EntitiesGetLatestValues(pairs, some, 0)
		if err != nil {
			return r.result, err
		}
		for i := range list {
			v := &list[i]
			r.result = append(r.result, dcgmValue{
				pair:  dcgm.GroupEntityPair{EntityGroupId: v.EntityGroupId, EntityId: v.EntityID},
				field: uint16(v.FieldID), typ: v.FieldType, bits: binary.NativeEndian.Uint64(v.Value[:8]), code: v.Status, ts: v.TS})
		}
	}
	return r.result, nil
}

// direct fills r.result and reports whether that went well.
func (r *dcgmReader) direct(pairs []dcgm.GroupEntityPair, ids []dcgm.Short) bool {
	if r.function == nil || len(pairs) == 0 || len(ids) == 0 {
		return false
	}
	for some := range slices.Chunk(pairs, max(1, maxRead/len(ids))) {
		r.pairs = r.pairs[:0]
		for _, p := range some {
			r.pairs = append(r.pairs, C.pair_t{group: C.uint32_t(p.EntityGroupId), entity: C.uint32_t(p.EntityId)})
		}
		n := len(some) * len(ids)
		if len(r.values) < n {
			r.values = make([]C.value_t, n)
		}
		if C.latest(r.function, dcgmEmbedded, &r.pairs[0], C.uint(len(some)),
			(*C.ushort)(unsafe.Pointer(&ids[0])), C.uint(len(ids)), &r.values[0]) != 0 {
			return false
		}
		for i := range r.values[:n] {
			v := &r.values[i]
			r.result = append(r.result, dcgmValue{
				pair:  dcgm.GroupEntityPair{EntityGroupId: dcgm.Field_Entity_Group(v.group), EntityId: uint(v.entity)},
				field: uint16(v.field), typ: uint(v._type), bits: uint64(v.value[0]), code: int(v.status), ts: int64(v.ts)})
		}
	}
	return true
}
