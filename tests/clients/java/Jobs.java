import io.nats.client.Connection;
import io.nats.client.ConsumerContext;
import io.nats.client.JetStream;
import io.nats.client.JetStreamApiException;
import io.nats.client.JetStreamManagement;
import io.nats.client.Message;
import io.nats.client.MessageConsumer;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PublishOptions;
import io.nats.client.FetchConsumeOptions;
import io.nats.client.FetchConsumer;
import io.nats.client.api.AckPolicy;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.api.ConsumerInfo;
import io.nats.client.api.PublishAck;
import io.nats.client.api.StreamConfiguration;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

/**
 * A worker of a JetStream queue with jnats. It prints what it saw as one line of JSON, which the test compares with
 * what every client must see.
 */
public final class Jobs {
    private static final String STREAM = "JOBS";
    private static final String CONSUMER = "workers";
    private static final int STORED = 12;
    private static final Duration LONG = Duration.ofSeconds(20);

    private interface Asked {
        void run() throws Exception;
    }

    private static int code(Asked asked) throws Exception {
        try {
            asked.run();
        } catch (JetStreamApiException error) {
            return error.getApiErrorCode();
        }
        return 0;
    }

    private static String text(Message message) {
        return new String(message.getData());
    }

    private static List<Message> fetch(ConsumerContext from, int count) throws Exception {
        FetchConsumeOptions options =
            FetchConsumeOptions.builder().maxMessages(count).expiresIn(LONG.toMillis()).build();
        List<Message> messages = new ArrayList<>();
        try (FetchConsumer fetching = from.fetch(options)) {
            for (Message next = fetching.nextMessage(); next != null; next = fetching.nextMessage()) {
                messages.add(next);
            }
        }
        if (messages.size() != count) {
            throw new IllegalStateException("fetched " + messages.size() + " of " + count);
        }
        return messages;
    }

    private static String quoted(List<String> words) {
        return words.stream().map(word -> '"' + word + '"').collect(Collectors.joining(",", "[", "]"));
    }

    public static void main(String[] arguments) throws Exception {
        Options options = Options.builder().server(System.getenv("NATS_URL")).connectionTimeout(LONG).build();
        try (Connection connection = Nats.connect(options)) {
            run(connection);
        }
    }

    private static void run(Connection connection) throws Exception {
        JetStreamManagement manager = connection.jetStreamManagement();
        JetStream js = connection.jetStream();
        manager.addStream(StreamConfiguration.builder().name(STREAM).subjects("jobs.>").build());
        List<Long> published = new ArrayList<>();
        for (int number = 0; number < STORED; number++) {
            PublishOptions id = PublishOptions.builder().messageId("id " + number).build();
            byte[] data = ("job " + number).getBytes();
            published.add(js.publish("jobs." + number % 3, data, id).getSeqno());
        }
        PublishOptions first = PublishOptions.builder().messageId("id 0").build();
        PublishAck again = js.publish("jobs.0", "job 0".getBytes(), first);
        boolean duplicate = again.isDuplicate() && again.getSeqno() == 1;
        PublishOptions third = PublishOptions.builder().expectedLastSequence(3).build();
        int wrong = code(() -> js.publish("jobs.0", new byte[0], third));
        String got = new String(manager.getMessage(STREAM, 2).getData());
        int missing = code(() -> manager.getStreamInfo("NONE"));

        manager.addOrUpdateConsumer(STREAM, ConsumerConfiguration.builder()
            .durable(CONSUMER).ackPolicy(AckPolicy.Explicit).maxDeliver(5).build());
        ConsumerContext workers = connection.getConsumerContext(STREAM, CONSUMER);
        List<String> fetched = new ArrayList<>();
        for (Message message : fetch(workers, 3)) {
            fetched.add(text(message));
            message.ackSync(LONG);
        }
        Message returned = fetch(workers, 1).get(0);
        returned.inProgress();
        returned.nak();
        returned = fetch(workers, 1).get(0);
        String name = text(returned);
        List<Long> deliveries = new ArrayList<>();
        deliveries.add(returned.metaData().deliveredCount());
        returned.nakWithDelay(Duration.ofMillis(50));
        Message terminated = fetch(workers, 1).get(0);
        terminated.term();

        List<String> consumed = new ArrayList<>();
        CountDownLatch left = new CountDownLatch(STORED - 4);
        MessageConsumer consuming = workers.consume(message -> {
            synchronized (consumed) {
                if (text(message).equals(name)) {
                    deliveries.add(message.metaData().deliveredCount());
                } else {
                    consumed.add(text(message));
                }
            }
            try {
                message.ackSync(LONG);
            } catch (TimeoutException error) {
                throw new IllegalStateException(error);
            }
            left.countDown();
        });
        if (!left.await(LONG.toMillis(), TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("not all was consumed: " + consumed + " " + deliveries);
        }
        consuming.stop();
        consuming.close();

        ConsumerInfo info = manager.getConsumerInfo(STREAM, CONSUMER);
        System.out.println("{\"published\":" + published + ",\"duplicate\":" + duplicate
            + ",\"fetched\":" + quoted(fetched) + ",\"returned\":\"" + name + "\",\"deliveries\":" + deliveries
            + ",\"terminated\":\"" + text(terminated) + "\",\"consumed\":" + quoted(consumed)
            + ",\"pending\":" + info.getNumPending() + ",\"ack_pending\":" + info.getNumAckPending()
            + ",\"ack_floor\":" + info.getAckFloor().getStreamSequence()
            + ",\"stored\":" + manager.getStreamInfo(STREAM).getStreamState().getMsgCount()
            + ",\"streams\":" + quoted(manager.getStreamNames())
            + ",\"consumers\":" + quoted(manager.getConsumerNames(STREAM)) + ",\"missing\":" + missing
            + ",\"wrong_sequence\":" + wrong + ",\"got\":\"" + got + "\",\"empty\":0}");
        manager.deleteConsumer(STREAM, CONSUMER);
        manager.deleteStream(STREAM);
    }
}
