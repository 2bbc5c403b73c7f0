// Package tributary sends events to tributary, each once: batches on disk, keyed retries. Standard library, Unix.
package tributary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The service knows a key for 24 hours.
const maxEvents, maxBytes, linger, longestWait, keySafe = 20, 10240, time.Second, 30 * time.Second, 20 * time.Hour

// Sender is safe for concurrent use. Report gets a text for each rejected event and failed request.
type Sender struct {
	URL, Token, Spool string
	App               int
	Report            func(string)

	mu            sync.Mutex
	lock, file    *os.File // file has the open events, of one method.
	method        string
	events, bytes int
	since         time.Time
	done, ended   chan bool
}

// Open takes the spool, an existing folder, which one process has.
func (s *Sender) Open() error {
	lock, err := os.Create(filepath.Join(s.Spool, "lock"))
	if err != nil || syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return fmt.Errorf("the spool %s is missing, or another process has it", s.Spool)
	}
	if s.Report == nil {
		s.Report = func(string) {}
	}
	s.lock, s.done, s.ended = lock, make(chan bool), make(chan bool)
	go s.run()
	return nil
}

// Send returns when an event of a method, such as customEvent, is in the spool. It survives a kill of the process; a
// power cut may lose the last second.
func (s *Sender) Send(method string, event map[string]any) error {
	stamped := map[string]any{"eventTimestamp": time.Now().Unix()}
	maps.Copy(stamped, event)
	line, err := json.Marshal(stamped)
	if err != nil || len(line)+2 > maxBytes {
		return fmt.Errorf("an event is JSON of at most %d bytes (%v)", maxBytes-2, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || s.method != method || s.events == maxEvents || s.bytes+len(line)+1 > maxBytes {
		if err = s.seal(true); err != nil {
			return err
		}
		s.method, s.events, s.bytes, s.since = method, 0, 1, time.Now()
		if s.file, err = os.OpenFile(filepath.Join(s.Spool, method+".open"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	s.events, s.bytes = s.events+1, s.bytes+len(line)+1
	if _, err = s.file.Write(append(line, '\n')); err != nil { // No line may follow a torn one.
		err = errors.Join(err, s.seal(true))
	}
	return err
}

// Close waits until every accepted event is stored. At the timeout it returns false: the others stay in the spool.
func (s *Sender) Close(timeout time.Duration) bool {
	for until := time.Now().Add(timeout); len(s.list("*.open"))+len(s.list("*.batch")) > 0 && time.Now().Before(until); {
		time.Sleep(linger / 50)
	}
	close(s.done)
	<-s.ended
	return s.lock.Close() == nil && len(s.list("*.open"))+len(s.list("*.batch")) == 0
}

func (s *Sender) list(pattern string) []string {
	paths, _ := filepath.Glob(filepath.Join(s.Spool, pattern))
	return paths // Sorted: batches by their time.
}

// seal gives open events a key: the name of their file. It seals those that are old or that another process or a failed
// seal has left, or all. A line that a kill or a full disk has cut was not accepted.
func (s *Sender) seal(all bool) (err error) {
	for _, open := range s.list("*.open") {
		method := strings.TrimSuffix(filepath.Base(open), ".open")
		if s.file != nil && method == s.method {
			if !all && s.events < maxEvents && time.Since(s.since) < linger {
				continue
			}
			err = errors.Join(err, s.file.Sync(), s.file.Close())
			s.file = nil
		}
		err = errors.Join(err, os.Rename(open, fmt.Sprintf("%s/%019d-%016x.%s.batch", s.Spool, time.Now().UnixNano(), rand.Uint64(), method)))
	}
	return err
}

func (s *Sender) run() {
	defer close(s.ended)
	for wait, next := linger/2, time.Now(); ; {
		pause := linger / 50
		if time.Now().After(next) {
			s.mu.Lock()
			after, err := time.Duration(0), s.seal(false)
			s.mu.Unlock()
			if batches := s.list("*.batch"); err == nil && len(batches) > 0 {
				if after, err = s.post(batches[0]); err == nil {
					wait, pause = linger/2, 0
				}
			}
			if err != nil {
				s.Report(err.Error())
				next, wait = time.Now().Add(max(after, wait)), min(2*wait, longestWait)
			}
		}
		select {
		case <-s.done:
			return
		case <-time.After(pause):
		}
	}
}

// post sends a batch, and removes it when it is settled. Else it returns why, and the least wait.
func (s *Sender) post(batch string) (after time.Duration, err error) {
	text, err := os.ReadFile(batch)
	name, lines := strings.Split(filepath.Base(batch), "."), strings.Split(string(text), "\n")
	lines = lines[:len(lines)-1]
	if err == nil && name[0] < fmt.Sprintf("%019d", time.Now().Add(-keySafe).UnixNano()) {
		status, after, answer := s.call("GET", "event", "&key="+name[0], name[0], "")
		if status != 200 || !strings.Contains(answer, `"state"`) {
			return after, fmt.Errorf("lookup of an old batch: %d %s", status, answer)
		} else if !strings.Contains(answer, `"never_seen"`) {
			lines = nil
		}
	}
	status, answer := 200, `"message"`
	if len(lines) > 0 {
		status, after, answer = s.call("POST", name[1]+"Batch/", "", name[0], "["+strings.Join(lines, ",")+"]")
	}
	isRefused := strings.Contains(answer, `"error"`) && status/100 == 4 && !slices.Contains([]int{401, 403, 408, 429}, status)
	if err != nil || !isRefused && (status != 200 || !strings.Contains(answer, `"message"`)) {
		return after, fmt.Errorf("%s: %d %s (%v)", name[1], status, answer, err)
	}
	for at := 0; isRefused && at < len(lines) && err == nil; at++ {
		target, flag := filepath.Join(s.Spool, "rejected.ndjson"), os.O_APPEND
		if status == 400 && len(lines) > 1 { // Each event alone, with a key that a repeat after a kill has too.
			target, flag = filepath.Join(s.Spool, fmt.Sprintf("%s-%02d.%s.batch", name[0], at, name[1])), os.O_TRUNC
		} else {
			s.Report("rejected: " + answer)
		}
		file, opened := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|flag, 0o600)
		_, written := fmt.Fprintln(file, lines[at])
		err = errors.Join(opened, written, file.Sync(), file.Close())
	}
	if err == nil {
		err = os.Remove(batch)
	}
	return 0, err
}

func (s *Sender) call(verb, path, query, key, body string) (int, time.Duration, string) {
	request, err := http.NewRequest(verb, fmt.Sprintf("%s/v1/%s?idApp=%d%s", s.URL, path, s.App, query), strings.NewReader(body))
	if err == nil {
		request.Header = http.Header{"Authorization": {s.Token}, "Idempotency-Key": {key}}
		var response *http.Response
		if response, err = (&http.Client{Timeout: 10 * time.Second}).Do(request); err == nil {
			defer response.Body.Close()
			answer, _ := io.ReadAll(response.Body)
			after, _ := time.ParseDuration(response.Header.Get("Retry-After") + "s")
			return response.StatusCode, after, response.Header.Get("X-Error-Detail") + " " + string(answer)
		}
	}
	return 0, 0, fmt.Sprint(err)
}
