// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
)

// maxFrame bounds one message between the agent and its child. 16 GPUs with
// 1000 fields are below 1 MiB.
const maxFrame = 8 << 20

// request is what the agent asks its child.
type request struct {
	ID     uint64
	Op     string       // opOpen, opRead, opConfigure
	Source string       // opOpen: name of the source
	Config SourceConfig // opOpen, opConfigure
}

// The operations of a child.
const (
	opOpen = "open"
	opRead = "read"
	// opConfigure changes what the source reads.
	opConfigure = "configure"
)

// response answers the request of the same ID.
type response struct {
	ID     uint64
	Err    string
	Sample *Sample // opRead
}

// frameWriter writes gob messages, each behind its length as four bytes. The
// length lets the reader refuse a message before it takes any memory; gob sends
// its type descriptions once in the life of the stream.
type frameWriter struct {
	w   io.Writer
	buf bytes.Buffer
	enc *gob.Encoder
}

func newFrameWriter(w io.Writer) *frameWriter {
	f := &frameWriter{w: w}
	f.enc = gob.NewEncoder(&f.buf)
	return f
}

func (f *frameWriter) write(msg any) error {
	f.buf.Reset()
	f.buf.Write(make([]byte, 4))
	if err := f.enc.Encode(msg); err != nil {
		return err
	}
	b := f.buf.Bytes()
	if len(b)-4 > maxFrame {
		return fmt.Errorf("message of %d bytes is larger than %d", len(b)-4, maxFrame)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	_, err := f.w.Write(b)
	return err
}

// frameReader reads what a frameWriter wrote.
type frameReader struct {
	r   io.Reader
	buf bytes.Buffer
	dec *gob.Decoder
}

func newFrameReader(r io.Reader) *frameReader {
	f := &frameReader{r: r}
	f.dec = gob.NewDecoder(&f.buf)
	return f
}

// read returns io.EOF when the stream ended between two messages.
func (f *frameReader) read(msg any) error {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("message of %d bytes is larger than %d", n, maxFrame)
	}
	f.buf.Reset()
	if _, err := io.CopyN(&f.buf, f.r, int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return f.dec.Decode(msg)
}
