// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// maxJournalLine bounds an entry in bytes: a kernel message has at most 8 KiB,
	// four times that when it is written as a list of bytes.
	maxJournalLine = 64 << 10
	maxJournalSays = 300 // bytes of its complaint that are kept
	// journalRefused is how soon journalctl ends when it does not know a cursor.
	journalRefused = 5 * time.Second
	// journalGrace is how long a killed journalctl may take to end.
	journalGrace = 2 * time.Second
)

// cursorForm is what a cursor may look like on a command line (sd_journal_get_cursor(3)
// gives fields of hexadecimal digits).
var cursorForm = regexp.MustCompile(`^s=[0-9A-Za-z;=]{1,300}$`)

// followJournal reads the kernel's part of the journal of this boot.
func followJournal(ctx context.Context, k *KernelLog, up func()) error {
	// Pdeathsig comes when the thread ends that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pos := k.state.position()
	began := time.Now()
	args := append(k.journalctl[1:len(k.journalctl):len(k.journalctl)], journalArgs(pos, k.state.kept())...)
	cmd := exec.CommandContext(ctx, k.journalctl[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = journalGrace
	var says firstBytes
	cmd.Stderr = &says
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	entries, readErr := k.readJournal(ctx, out, up)
	if readErr != nil {
		cmd.Cancel()
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	if entries == 0 && pos.Cursor != "" && time.Since(began) < journalRefused {
		k.state.read(func(p *logPosition) { p.Cursor = "" }) // from its time the next time
	}
	switch {
	case says.text() != "":
		return errors.New(says.text())
	case readErr != nil:
		return readErr
	case err != nil:
		return err
	}
	return errors.New("journalctl ended")
}

// journalArgs are the arguments of journalctl for a position.
func journalArgs(pos logPosition, kept bool) []string {
	args := []string{"--quiet", "--no-pager", "-k", "-f", "-o", "json", "--output-fields=MESSAGE,_TRANSPORT,SYSLOG_FACILITY,SYSLOG_IDENTIFIER"}
	switch {
	case cursorForm.MatchString(pos.Cursor):
		return append(args, "--no-tail", "--after-cursor="+pos.Cursor)
	case pos.CursorTime > 0:
		return append(args, "--no-tail", "--since=@"+strconv.FormatInt(pos.CursorTime/1e6+1, 10))
	case !kept:
		return append(args, "--lines=0")
	}
	return append(args, "--no-tail")
}

// readJournal reads the output of journalctl to its end. It says up when
// journalctl has not complained in a second, or with the first entry.
func (k *KernelLog) readJournal(ctx context.Context, out io.Reader, up func()) (entries int, err error) {
	ready := time.AfterFunc(time.Second, up)
	defer ready.Stop()
	in := bufio.NewReaderSize(out, maxJournalLine)
	pace := newPacer()
	for {
		line, err := in.ReadSlice('\n')
		long := false
		for errors.Is(err, bufio.ErrBufferFull) {
			long = true
			_, err = in.ReadSlice('\n')
		}
		if err != nil { // an entry without an end is none
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return entries, err
		}
		if long {
			k.lose(lostLong, 1)
			continue
		}
		if entries++; entries == 1 && ready.Stop() {
			up()
		}
		k.journalEntry(string(line))
		if !pace.step(ctx, false) { // journalctl waits meanwhile
			return entries, nil
		}
	}
}

func (k *KernelLog) journalEntry(line string) {
	at := time.Now()
	micros, err := strconv.ParseInt(journalField(line, "__REALTIME_TIMESTAMP"), 10, 64)
	if err == nil && micros > 0 {
		at = time.UnixMicro(micros)
	}
	k.line(line, at)
	if cursor := journalField(line, "__CURSOR"); cursorForm.MatchString(cursor) {
		k.state.read(func(p *logPosition) { p.Cursor, p.CursorTime = cursor, micros })
	}
}

// journalField is the text of a field of the journal's own, which have no escapes.
// Decoding each entry would cost more than all else.
func journalField(line, name string) string {
	_, rest, ok := strings.Cut(line, `"`+name+`":"`)
	if !ok { // before systemd 240
		_, rest, _ = strings.Cut(line, `"`+name+`" : "`)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// firstBytes keeps how a program's complaint begins.
type firstBytes struct{ kept []byte }

func (f *firstBytes) Write(p []byte) (int, error) {
	f.kept = append(f.kept, p[:min(len(p), maxJournalSays-len(f.kept))]...)
	return len(p), nil
}

func (f *firstBytes) text() string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(f.kept), "?")), " ")
}
