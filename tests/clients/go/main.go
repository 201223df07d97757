// A worker of a JetStream queue with the package `jetstream` of nats.go. It prints what it saw as one line of JSON,
// which the test compares with what every client must see.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	stream   = "JOBS"
	consumer = "workers"
	stored   = 12
)

// What a program has seen, in the words of the test.
type seen struct {
	Published     []uint64 `json:"published"`
	Duplicate     bool     `json:"duplicate"`
	Fetched       []string `json:"fetched"`
	Returned      string   `json:"returned"`
	Deliveries    []uint64 `json:"deliveries"`
	Terminated    string   `json:"terminated"`
	Consumed      []string `json:"consumed"`
	Pending       uint64   `json:"pending"`
	AckPending    int      `json:"ack_pending"`
	AckFloor      uint64   `json:"ack_floor"`
	Stored        uint64   `json:"stored"`
	Streams       []string `json:"streams"`
	Consumers     []string `json:"consumers"`
	Missing       int      `json:"missing"`
	WrongSequence int      `json:"wrong_sequence"`
	Got           string   `json:"got"`
	Empty         int      `json:"empty"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func code(err error) int {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return int(api.ErrorCode)
	}
	return 0
}

func fetch(ctx context.Context, from jetstream.Consumer, count int) []jetstream.Msg {
	batch := must(from.Fetch(count, jetstream.FetchMaxWait(20*time.Second)))
	var messages []jetstream.Msg
	for message := range batch.Messages() {
		messages = append(messages, message)
	}
	check(batch.Error())
	if len(messages) != count {
		log.Fatalf("fetched %d of %d", len(messages), count)
	}
	return messages
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	connection := must(nats.Connect(os.Getenv("NATS_URL")))
	defer connection.Close()
	js := must(jetstream.New(connection))
	var found seen

	jobs := must(js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"jobs.>"}}))
	for number := range stored {
		ack := must(js.Publish(ctx, fmt.Sprintf("jobs.%d", number%3), fmt.Appendf(nil, "job %d", number),
			jetstream.WithMsgID(fmt.Sprintf("id %d", number))))
		found.Published = append(found.Published, ack.Sequence)
	}
	again := must(js.Publish(ctx, "jobs.0", []byte("job 0"), jetstream.WithMsgID("id 0")))
	found.Duplicate = again.Duplicate && again.Sequence == 1
	_, err := js.Publish(ctx, "jobs.0", nil, jetstream.WithExpectLastSequence(3))
	found.WrongSequence = code(err)
	found.Got = string(must(jobs.GetMsg(ctx, 2)).Data)
	_, err = js.Stream(ctx, "NONE")
	found.Missing = code(err)

	workers := must(jobs.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5,
	}))
	for _, message := range fetch(ctx, workers, 3) {
		found.Fetched = append(found.Fetched, string(message.Data()))
		check(message.DoubleAck(ctx))
	}
	returned := fetch(ctx, workers, 1)[0]
	check(returned.InProgress())
	check(returned.Nak())
	returned = fetch(ctx, workers, 1)[0]
	found.Returned = string(returned.Data())
	found.Deliveries = append(found.Deliveries, must(returned.Metadata()).NumDelivered)
	check(returned.NakWithDelay(50 * time.Millisecond))
	terminated := fetch(ctx, workers, 1)[0]
	found.Terminated = string(terminated.Data())
	check(terminated.TermWithReason("no good"))

	done := make(chan struct{})
	consuming := must(workers.Consume(func(message jetstream.Msg) {
		meta := must(message.Metadata())
		if string(message.Data()) == found.Returned {
			found.Deliveries = append(found.Deliveries, meta.NumDelivered)
		} else {
			found.Consumed = append(found.Consumed, string(message.Data()))
		}
		check(message.DoubleAck(ctx))
		if len(found.Consumed) == stored-5 && len(found.Deliveries) == 2 {
			close(done)
		}
	}))
	select {
	case <-done:
	case <-ctx.Done():
		log.Fatal("not all was consumed: ", found)
	}
	consuming.Stop()
	<-consuming.Closed()

	nothing := must(workers.FetchNoWait(5))
	for range nothing.Messages() {
		log.Fatal("something is left")
	}
	check(nothing.Error())
	info := must(workers.Info(ctx))
	found.Pending, found.AckPending, found.AckFloor = info.NumPending, info.NumAckPending, info.AckFloor.Stream
	found.Stored = must(jobs.Info(ctx)).State.Msgs
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		found.Streams = append(found.Streams, name)
	}
	consumers := jobs.ConsumerNames(ctx)
	for name := range consumers.Name() {
		found.Consumers = append(found.Consumers, name)
	}
	check(jobs.DeleteConsumer(ctx, consumer))
	check(js.DeleteStream(ctx, stream))
	fmt.Println(string(must(json.Marshal(found))))
}
