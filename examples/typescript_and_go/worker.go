// A worker in Go, with nothing but the plain NATS client: it takes jobs from a mailbox,
// does them, answers to the mailbox that the job names, and acknowledges.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

type message struct {
	ID      int64               `json:"msg_id"`
	Payload string              `json:"payload"`
	Headers map[string][]string `json:"headers"`
}

type answer struct {
	Error    string    `json:"error"`
	Messages []message `json:"messages"`
}

// ask sends one command of mq9 and returns its answer.
func ask(nc *nats.Conn, command string, body any) (*answer, error) {
	request, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	reply, err := nc.Request("$mq9.AI."+command, request, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return accepted(reply)
}

// accepted reads an answer, and returns what it refuses as an error.
func accepted(reply *nats.Msg) (*answer, error) {
	result := new(answer)
	if err := json.Unmarshal(reply.Data, result); err != nil {
		return nil, err
	}
	if result.Error != "" {
		return nil, errors.New(result.Error)
	}
	return result, nil
}

// send sends one message; an answer that refuses it is an error.
func send(nc *nats.Conn, address, key, text string) error {
	msg := nats.NewMsg("$mq9.AI.MSG.SEND." + address)
	msg.Data = []byte(text)
	msg.Header.Set("mq9-key", key)
	reply, err := nc.RequestMsg(msg, 10*time.Second)
	if err != nil {
		return err
	}
	_, err = accepted(reply)
	return err
}

// count is the work: how many words a text has.
func count(text string) string { return strconv.Itoa(len(strings.Fields(text))) }

func run(url, mailbox string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	// Whoever comes first makes it.
	create := map[string]any{"name": mailbox, "ttl": 600, "exist_ok": true}
	if _, err := ask(nc, "MAILBOX.CREATE", create); err != nil {
		return err
	}
	for {
		fetch := map[string]any{
			"group_name": "workers",
			"deliver":    "earliest",
			"config":     map[string]any{"num_msgs": 10, "max_wait_ms": 5000},
		}
		jobs, err := ask(nc, "MSG.FETCH."+mailbox, fetch)
		if err != nil {
			return err
		}
		for _, job := range jobs.Messages {
			if job.Payload == "stop" {
				return nil // It stays in the mailbox for the other workers.
			}
			name := job.Headers["job"][0]
			if err := send(nc, job.Headers["reply-to"][0], name, count(job.Payload)); err != nil {
				return err
			}
			// Acknowledged last: if this process dies before, another worker gets the job.
			ack := map[string]any{"group_name": "workers", "mail_address": mailbox, "msg_id": job.ID}
			if _, err := ask(nc, "MSG.ACK."+mailbox, ack); err != nil {
				return err
			}
			fmt.Printf("go: counted the words of job %s\n", name)
		}
	}
}

func main() {
	if err := run(os.Getenv("MQ9_URL"), os.Getenv("JOBS")); err != nil {
		log.Fatal(err)
	}
}
