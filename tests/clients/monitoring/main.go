// Reads the monitoring documents of a server as the Prometheus exporter of NATS does with -jsz=all and -varz: into
// the types of nats-server itself. Prints what the exporter makes metrics of, as one line of JSON.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

func read(path string, into any) {
	response, err := http.Get(os.Getenv("MONITOR_URL") + path)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		log.Fatal(path, ": ", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		log.Fatal(path, ": ", err)
	}
}

func main() {
	var varz server.Varz
	var jsz server.JSInfo
	read("/varz", &varz)
	read("/jsz?consumers=true&config=true&raft=true", &jsz)
	seen := map[string]any{
		"id":        jsz.ID == varz.ID,
		"disabled":  jsz.Disabled,
		"streams":   jsz.Streams,
		"consumers": jsz.Consumers,
		"messages":  jsz.Messages,
		"bytes":     jsz.Bytes > 0 && jsz.Bytes == varz.JetStream.Stats.Store,
		"clustered": jsz.Meta != nil || varz.JetStream.Meta != nil,
	}
	for _, account := range jsz.AccountDetails {
		for _, stream := range account.Streams {
			state, config := stream.State, stream.Config
			seen["stream"] = []any{account.Name, account.Id, stream.Name, state.Msgs, state.FirstSeq, state.LastSeq,
				state.Consumers, state.NumSubjects, config.MaxBytes, config.MaxMsgs, config.Metadata["team"]}
			for _, consumer := range stream.Consumer {
				seen["consumer"] = []any{consumer.Name, consumer.Config.Description, consumer.Delivered.Consumer,
					consumer.Delivered.Stream, consumer.AckFloor.Consumer, consumer.AckFloor.Stream,
					consumer.NumAckPending, consumer.NumRedelivered, consumer.NumWaiting, consumer.NumPending}
				seen["active"] = consumer.Delivered.Last != nil && consumer.AckFloor.Last != nil
			}
		}
	}
	line, err := json.Marshal(seen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}
