<?php
declare(strict_types=1);

/**
 * Sends events to tributary, each once: batches on disk, keyed retries. PHP 8.0 or later, no packages. Any number of
 * processes may share a spool. `send` returns when the event is in it; `flush` sends, as at the end of a request, in a
 * worker or by cron. A kill of the process loses and repeats nothing; a power cut may lose events that `flush` has not seen.
 */
final class TributarySender
{
    private const MAX_EVENTS = 20;
    private const MAX_BYTES = 10240;
    /** Seconds. The service knows a key for 24 hours. */
    private const KEY_SAFE = 20 * 3600;
    private const TIMEOUT = 10;
    private const LONGEST_WAIT = 30.0;

    /** @param ?callable(string): void $report gets a text for each rejected event and failed request */
    public function __construct(
        private string $url,
        private int $app,
        private string $token,
        private string $spool,
        private $report = null,
    ) {
        if (!is_dir($spool) && !mkdir($spool, 0700, true) && !is_dir($spool)) {
            throw new RuntimeException("cannot create $spool");
        }
    }

    /** Accepts an event of a method such as 'customEvent'. */
    public function send(string $method, array $event): void
    {
        $line = json_encode($event + ['eventTimestamp' => time()], JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE) . "\n";
        if (strlen($line) + 1 > self::MAX_BYTES) {
            throw new LengthException('an event has at most ' . (self::MAX_BYTES - 2) . ' bytes');
        }
        $lock = $this->lock('lock', LOCK_EX);
        $path = "$this->spool/$method.open";
        $open = is_file($path) ? file_get_contents($path) : '';
        if ($open === false) {
            throw new RuntimeException("cannot read $path");
        }
        // A line without its end is of a killed process, which did not accept it.
        $whole = substr($open, 0, (int) strrpos("\n$open", "\n"));
        if ($whole !== $open) {
            $file = fopen($path, 'r+');
            ftruncate($file, strlen($whole));
            fclose($file);
        }
        if (substr_count($whole, "\n") >= self::MAX_EVENTS || strlen($whole) + strlen($line) + 1 > self::MAX_BYTES) {
            $this->seal($method);
        }
        if (file_put_contents($path, $line, FILE_APPEND) !== strlen($line)) {
            throw new RuntimeException("cannot write to $path");
        }
        fclose($lock);
    }

    /** Sends until the spool is empty. Returns false at the timeout, or while another process sends. */
    public function flush(float $timeout = 60.0): bool
    {
        $sending = $this->lock('sending', LOCK_EX | LOCK_NB);
        if ($sending === null) {
            return false;
        }
        $lock = $this->lock('lock', LOCK_EX);
        foreach (glob("$this->spool/*.open") as $path) {
            $this->seal(basename($path, '.open'));
        }
        fclose($lock);
        [$until, $wait] = [microtime(true) + $timeout, 0.5];
        while ($batches = glob("$this->spool/*.batch")) {
            $after = $this->post($batches[0]);
            if ($after === null) {
                $wait = 0.5;
                continue;
            }
            $pause = max($after, $wait * (0.5 + mt_rand() / mt_getrandmax() / 2));
            if (microtime(true) + $pause > $until) {
                return false;
            }
            usleep((int) ($pause * 1e6));
            $wait = min(2 * $wait, self::LONGEST_WAIT);
        }
        return true;
    }

    /** @return ?resource */
    private function lock(string $name, int $operation)
    {
        $file = fopen("$this->spool/$name", 'c');
        return flock($file, $operation) ? $file : null;
    }

    /** Gives the open events of a method a key: the name of their file. */
    private function seal(string $method): void
    {
        $key = sprintf('%013d-%s', (int) (microtime(true) * 1000), bin2hex(random_bytes(16)));
        if (!rename("$this->spool/$method.open", "$this->spool/$key.$method.batch")) {
            throw new RuntimeException("cannot seal $this->spool/$method.open");
        }
    }

    /** Sends a batch. Returns null when it is settled and removed, else the least wait in seconds. */
    private function post(string $batch): ?float
    {
        [$key, $method] = explode('.', basename($batch));
        $text = file_get_contents($batch);
        if ($text === false) {
            $this->tell("cannot read $batch");
            return 0.0;
        }
        $lines = array_slice(explode("\n", $text), 0, -1);
        if (microtime(true) - (int) substr($key, 0, 13) / 1000 > self::KEY_SAFE) {
            [$status, $after, $answer] = $this->call('GET', 'event', '&key=' . $key, $key, '');
            if ($status !== 200 || !str_contains($answer, '"state"')) {
                $this->tell("lookup of an old batch: $status $answer");
                return $after;
            }
            $lines = str_contains($answer, '"never_seen"') ? $lines : [];
        }
        [$status, $after, $answer] = $lines === []
            ? [200, 0.0, '"message"']
            : $this->call('POST', $method . 'Batch/', '', $key, '[' . implode(',', $lines) . ']');
        $isRefused = str_contains($answer, '"error"') && intdiv($status, 100) === 4 && !in_array($status, [401, 403, 408, 429], true);
        if (!$isRefused && !($status === 200 && str_contains($answer, '"message"'))) {
            $this->tell("$method: $status $answer");
            return $status > 0 && $status < 500 && $status !== 429 && $status !== 408 ? self::LONGEST_WAIT : $after;
        }
        foreach ($isRefused ? $lines : [] as $at => $line) {
            $isRejected = count($lines) === 1 || $status !== 400;
            if ($isRejected) {
                $this->tell("rejected: $answer");
            }
            // Each event alone, with a key that a repeat after a kill has too.
            $target = $isRejected ? 'rejected.ndjson' : sprintf('%s-%02d.%s.batch', $key, $at, $method);
            if (!$this->write("$this->spool/$target", $isRejected ? 'a' : 'w', "$line\n")) {
                $this->tell("cannot write to $target");
                return 0.0;
            }
        }
        return unlink($batch) ? null : 0.0;
    }

    private function write(string $path, string $mode, string $text): bool
    {
        $file = fopen($path, $mode);
        // PHP 8.0 has no fsync.
        $isWritten = $file !== false && fwrite($file, $text) === strlen($text) && fflush($file) && (!function_exists('fsync') || fsync($file));
        return $file !== false && fclose($file) && $isWritten;
    }

    /** @return array{int, float, string} status (0: no response), Retry-After in seconds, text */
    private function call(string $verb, string $path, string $query, string $key, string $body): array
    {
        $headers = ["Authorization: $this->token", "Idempotency-Key: $key", 'Content-Type: application/json'];
        $http = ['method' => $verb, 'header' => $headers, 'content' => $body, 'ignore_errors' => true, 'timeout' => self::TIMEOUT];
        $url = "$this->url/v1/$path?idApp=$this->app$query";
        $text = @file_get_contents($url, false, stream_context_create(['http' => $http]));
        $head = implode("\n", $http_response_header ?? []);
        if ($text === false || preg_match('~^HTTP/\S+ (\d+)~', $head, $found) !== 1) {
            return [0, 0.0, 'no response'];
        }
        $after = preg_match('~^Retry-After: *(\d{1,5})$~mi', $head, $seconds) === 1 ? (float) $seconds[1] : 0.0;
        $detail = preg_match('~^X-Error-Detail: *(.*)$~mi', $head, $named) === 1 ? $named[1] : '';
        return [(int) $found[1], $after, "$detail $text"];
    }

    private function tell(string $text): void
    {
        if ($this->report !== null) {
            ($this->report)($text);
        }
    }
}
