// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// filePause is the time between two looks at a file; fileSlice is what is read
	// of it in one: 10 MB/s, some percent of a core. A flood is read later, not lost.
	filePause = 100 * time.Millisecond
	fileSlice = 1 << 20
	// maxFileLine is what is kept of a line, in bytes; xid looks at no more.
	maxFileLine = 8 << 10
	// fileGone is how long a file may be away, as while logs are rotated.
	fileGone = 5 * time.Second
	// fileHandover is how long a writer may go on with a file that was renamed.
	fileHandover = time.Second
	// maxSiblings bounds the files among which a rotated log is looked for.
	maxSiblings = 1000
)

// tailedFile is a log file that is read as it grows.
type tailedFile struct {
	file *os.File
	mark fileMark
	line []byte // the unfinished last line, cut to maxFileLine
	part int64  // its bytes so far
}

// openTailed opens a regular file at an offset; a negative one is its end.
func openTailed(path string, offset int64) (*tailedFile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO without a writer would block
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err == nil {
		whence := io.SeekStart
		if offset < 0 {
			offset, whence = 0, io.SeekEnd
		}
		offset, err = f.Seek(offset, whence)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	device, inode := fileID(info)
	return &tailedFile{file: f, mark: fileMark{Device: device, Inode: inode, Offset: offset}}, nil
}

func fileID(info fs.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino
	}
	return 0, 0
}

// followFile reads a log file that syslog writes, over rotations.
func followFile(ctx context.Context, k *KernelLog, path string, up func()) error {
	t, err := k.resumeFile(path)
	if err != nil {
		return err
	}
	var next *tailedFile // has taken the log's name
	defer func() {
		t.file.Close()
		if next != nil {
			next.file.Close()
		}
	}()
	up()
	buf := make([]byte, 64<<10)
	var gone, seen time.Time // since when there is no file, since when another one
	for {
		more, err := t.read(k, path, buf)
		if err != nil {
			return err
		}
		if !more && next != nil && (next.mark.Inode == t.mark.Inode || time.Since(seen) > fileHandover) {
			t.end(k)
			t, next = next, nil
			continue
		}
		if !more && next == nil {
			seen = time.Now()
			if next, err = t.successor(path, &gone); err != nil {
				return err
			}
		}
		if !sleep(ctx, filePause) {
			return nil
		}
	}
}

// resumeFile opens the log where an earlier run left it, be it in a file that was
// rotated meanwhile; a log that was never read is opened at its end, for it holds
// more than this boot.
func (k *KernelLog) resumeFile(path string) (*tailedFile, error) {
	mark := k.state.position().File
	if mark == nil || mark.Path != path {
		return openTailed(path, -1)
	}
	t, err := openTailed(path, mark.Offset)
	if err != nil {
		return nil, err
	}
	if t.mark.Device == mark.Device && t.mark.Inode == mark.Inode && t.fits() {
		return t, nil
	}
	t.file.Close()
	if old := rotated(path, mark); old != nil {
		return old, nil
	}
	return openTailed(path, 0)
}

// fits tells whether the file is as long as what was read of it.
func (t *tailedFile) fits() bool {
	info, err := t.file.Stat()
	return err == nil && info.Size() >= t.mark.Offset
}

// rotated finds the file of a mark under another name beside the log.
func rotated(path string, mark *fileMark) *tailedFile {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxSiblings)
	for _, name := range names {
		if !strings.HasPrefix(name, filepath.Base(path)) {
			continue
		}
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		if err != nil || !info.Mode().IsRegular() || info.Size() < mark.Offset {
			continue
		}
		if device, inode := fileID(info); device != mark.Device || inode != mark.Inode {
			continue
		}
		if t, err := openTailed(filepath.Join(filepath.Dir(path), name), mark.Offset); err == nil {
			return t
		}
	}
	return nil
}

// read takes at most fileSlice bytes; more says that there may be more of them.
func (t *tailedFile) read(k *KernelLog, path string, buf []byte) (more bool, err error) {
	taken := 0
	for taken < fileSlice {
		n, err := t.file.Read(buf)
		taken += n
		t.take(k, buf[:n])
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return false, err
		}
		break
	}
	if taken > 0 {
		mark := t.mark
		mark.Path = path
		k.state.read(func(p *logPosition) { p.File = &mark })
	}
	return taken >= fileSlice, nil
}

// take splits bytes into lines.
func (t *tailedFile) take(k *KernelLog, data []byte) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		piece := data
		if end >= 0 {
			piece = data[:end]
		}
		t.line = append(t.line, piece[:min(len(piece), maxFileLine-len(t.line))]...)
		t.part += int64(len(piece))
		if end < 0 {
			return
		}
		k.line(string(t.line), time.Now())
		t.mark.Offset += t.part + 1
		t.line, t.part = t.line[:0], 0
		data = data[end+1:]
	}
}

// end closes a file that goes on under another name.
func (t *tailedFile) end(k *KernelLog) {
	if t.part > 0 {
		k.line(string(t.line), time.Now())
	}
	t.file.Close()
}

// successor opens the file that has taken the log's name, or the same one again
// if it was cut; nil when there is nothing new. gone is since when there is no file.
func (t *tailedFile) successor(path string, gone *time.Time) (*tailedFile, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if gone.IsZero() {
			*gone = time.Now()
		}
		if time.Since(*gone) < fileGone {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	*gone = time.Time{}
	device, inode := fileID(info)
	if device == t.mark.Device && inode == t.mark.Inode && info.Size() >= t.mark.Offset+t.part {
		return nil, nil
	}
	next, err := openTailed(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the next look will tell
	}
	return next, err
}
