import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.function.Consumer;

/**
 * Sends events to tributary, each once: batches on disk, keyed retries. Java 17 or later, no packages. Thread-safe.
 * `send` returns when the event is in the spool. It survives a kill of the process: the next Sender on the folder sends
 * it. A power cut may lose the last second.
 */
public final class Sender implements AutoCloseable {
    private static final int MAX_EVENTS = 20, MAX_BYTES = 10_240;
    /** Milliseconds. The service knows a key for 24 hours. */
    private static final long LINGER = 1000, LONGEST_WAIT = 30_000, KEY_SAFE = 20 * 3_600_000L;
    /** Statuses after which the same batch may be stored later. */
    private static final List<Integer> WAITING = List.of(401, 403, 408, 429);
    private static final Duration TIMEOUT = Duration.ofSeconds(10);

    private record Answer(int status, long afterMs, String text) {}

    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(TIMEOUT).build();
    private final Path spool;
    private final String url, token;
    private final int app;
    private final Consumer<String> report;
    private final RandomAccessFile lockFile;
    private final Thread thread = new Thread(this::run, "tributary");
    private FileChannel open;
    private String method;
    private int events, bytes;
    private long since;
    private volatile boolean closing;

    /** Opens a spool, which one process has. `report` gets a text for each rejected event and failed request. */
    public Sender(String url, int app, String token, Path spool, Consumer<String> report) throws IOException {
        this.url = url;
        this.app = app;
        this.token = token;
        this.spool = Files.createDirectories(spool);
        this.report = report;
        lockFile = new RandomAccessFile(spool.resolve("lock").toFile(), "rw");
        if (lockFile.getChannel().tryLock() == null) throw new IOException("another process has the spool " + spool);
        thread.setDaemon(true);
        thread.start();
    }

    /** Accepts an event of a method, such as customEvent: a JSON object of at most 10,238 bytes, with eventTimestamp. */
    public synchronized void send(String ofMethod, String json) throws IOException {
        byte[] line = (json + "\n").getBytes(StandardCharsets.UTF_8);
        if (line.length + 1 > MAX_BYTES || json.indexOf('\n') >= 0 || closing) throw new IOException("not one line of at most 10,238 bytes, or closed");
        if (open != null && (!ofMethod.equals(method) || events == MAX_EVENTS || bytes + line.length > MAX_BYTES)) seal(method);
        if (open == null) {
            Path file = spool.resolve(ofMethod + ".open");
            if (Files.exists(file)) seal(ofMethod);
            open = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            method = ofMethod;
            events = 0;
            bytes = 1;
            since = System.currentTimeMillis();
        }
        try {
            if (open.write(java.nio.ByteBuffer.wrap(line)) < line.length) throw new IOException("the disk of the spool is full");
        } catch (IOException error) {
            seal(ofMethod); // No line may follow a torn one.
            throw error;
        }
        events += 1;
        bytes += line.length;
    }

    /** Waits until every accepted event is stored. Returns false at the timeout: the others stay in the spool. */
    public boolean close(Duration timeout) throws IOException, InterruptedException {
        for (long until = System.nanoTime() + timeout.toNanos(); hasEvents() && System.nanoTime() < until; ) Thread.sleep(20);
        closing = true;
        thread.join();
        lockFile.close();
        return !hasEvents();
    }

    @Override
    public void close() throws IOException, InterruptedException {
        close(Duration.ofMinutes(1));
    }

    private synchronized boolean hasEvents() throws IOException {
        return !list(".open").isEmpty() || !list(".batch").isEmpty();
    }

    private List<Path> list(String end) throws IOException {
        try (var paths = Files.list(spool)) {
            return paths.filter(path -> path.toString().endsWith(end)).sorted().toList();
        }
    }

    /** Gives the open events a key: the name of their file. A line that a kill or a full disk has cut was not accepted. */
    private synchronized void seal(String ofMethod) throws IOException {
        try (FileChannel file = ofMethod.equals(method) ? open : null) {
            if (file != null) open = null;
            if (file != null) file.force(true);
        }
        String key = "%013d-%s".formatted(System.currentTimeMillis(), UUID.randomUUID());
        Files.move(spool.resolve(ofMethod + ".open"), spool.resolve(key + "." + ofMethod + ".batch"));
    }

    private void run() {
        long wait = LINGER / 2, next = 0;
        while (!closing) {
            long pause = 20;
            try {
                synchronized (this) {
                    boolean isDue = open == null || events == MAX_EVENTS || System.currentTimeMillis() - since >= LINGER;
                    for (Path left : list(".open")) { // Also those that a killed process or a failed seal has left.
                        String ofMethod = left.getFileName().toString().replace(".open", "");
                        if (isDue || !ofMethod.equals(method)) seal(ofMethod);
                    }
                }
                List<Path> batches = list(".batch");
                if (!batches.isEmpty() && System.currentTimeMillis() >= next) {
                    long after = post(batches.get(0));
                    next = after < 0 ? 0 : System.currentTimeMillis() + Math.max(after, wait);
                    wait = after < 0 ? LINGER / 2 : Math.min(2 * wait, LONGEST_WAIT);
                    pause = after < 0 ? 0 : pause;
                }
                Thread.sleep(pause);
            } catch (IOException | RuntimeException error) {
                report.accept(error.toString());
                next = System.currentTimeMillis() + wait;
            } catch (InterruptedException error) {
                return;
            }
        }
    }

    /** Sends a batch. Returns -1 when it is settled and removed, else the least wait, ms. */
    private long post(Path batch) throws IOException, InterruptedException {
        String[] name = batch.getFileName().toString().split("\\.");
        String text = new String(Files.readAllBytes(batch), StandardCharsets.UTF_8);
        int end = text.lastIndexOf('\n');
        List<String> lines = end < 0 ? List.of() : List.of(text.substring(0, end).split("\n", -1));
        if (System.currentTimeMillis() - Long.parseLong(name[0].substring(0, 13)) > KEY_SAFE) {
            Answer known = call("GET", "event", "&key=" + name[0], name[0], "");
            if (known.status != 200 || !known.text.contains("\"state\"")) {
                report.accept("lookup of an old batch: " + known.status + " " + known.text);
                return known.afterMs;
            }
            if (!known.text.contains("\"never_seen\"")) lines = List.of();
        }
        Answer answer = lines.isEmpty() ? new Answer(200, 0, "\"message\"")
                : call("POST", name[1] + "Batch/", "", name[0], "[" + String.join(",", lines) + "]");
        boolean isRefused = answer.text.contains("\"error\"") && answer.status / 100 == 4 && !WAITING.contains(answer.status);
        if (!isRefused && !(answer.status == 200 && answer.text.contains("\"message\""))) {
            report.accept(name[1] + ": " + answer.status + " " + answer.text);
            return answer.status < 500 && answer.status != 429 && answer.status != 408 && answer.status != 0 ? LONGEST_WAIT : answer.afterMs;
        }
        for (int at = 0; isRefused && at < lines.size(); at++) {
            boolean isRejected = lines.size() == 1 || answer.status != 400;
            if (isRejected) report.accept("rejected: " + answer.text);
            // Each event alone, with a key that a repeat after a kill has too.
            Path target = spool.resolve(isRejected ? "rejected.ndjson" : "%s-%02d.%s.batch".formatted(name[0], at, name[1]));
            var mode = isRejected ? StandardOpenOption.APPEND : StandardOpenOption.TRUNCATE_EXISTING;
            Files.writeString(target, lines.get(at) + "\n", StandardOpenOption.CREATE, StandardOpenOption.WRITE, mode, StandardOpenOption.SYNC);
        }
        Files.delete(batch);
        return -1;
    }

    private Answer call(String verb, String path, String query, String key, String body) throws InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/v1/" + path + "?idApp=" + app + query)).timeout(TIMEOUT)
                .header("Authorization", token).header("Idempotency-Key", key)
                .method(verb, HttpRequest.BodyPublishers.ofString(body)).build();
        try {
            HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
            long after = answer.headers().firstValue("Retry-After").filter(value -> value.matches("\\d{1,5}")).map(Long::parseLong).orElse(0L);
            String detail = answer.headers().firstValue("X-Error-Detail").orElse("");
            return new Answer(answer.statusCode(), 1000 * after, detail + " " + answer.body());
        } catch (IOException error) {
            return new Answer(0, 0, error.toString());
        }
    }
}
