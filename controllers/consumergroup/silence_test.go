// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestAnAddressThatIsSilentIsNotDialled(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	address := listener.Addr().String()
	var s silences
	dial := func() (net.Conn, net.Conn) {
		t.Helper()
		mine, err := s.dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		theirs, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return mine, theirs
	}
	refused := func() bool {
		conn, err := s.dial(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			theirs, _ := listener.Accept()
			_ = theirs.Close()
			return false
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "dial" || !errors.Is(unanswered(7, err), silence{7}) {
			t.Fatalf("dialling a silent address says %v", err)
		}
		return true
	}
	mine, theirs := dial()
	defer func() { _, _ = mine.Close(), theirs.Close() }()

	// A read that is cut short says nothing.
	_ = mine.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := mine.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || refused() {
		t.Fatalf("a read that was cut short (%v) makes it silent", err)
	}
	_ = mine.SetReadDeadline(time.Now().Add(minSilence))
	if _, err := mine.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || !refused() {
		t.Fatalf("a read that waited in vain (%v) does not make it silent", err)
	}

	// When it is time one may try again, and if something comes all may.
	s.mu.Lock()
	s.until[address] = time.Now().Add(-time.Millisecond)
	s.mu.Unlock()
	again, speaker := dial()
	defer func() { _, _ = again.Close(), speaker.Close() }()
	if !refused() {
		t.Fatal("two may try at once")
	}
	if _, err := speaker.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(again, make([]byte, 1)); err != nil || refused() {
		t.Fatalf("it is silent although something came (%v)", err)
	}
}
