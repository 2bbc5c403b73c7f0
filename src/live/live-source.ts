import { addFormerNames } from '../runtime/former-names.ts';

export interface LiveMessage {
  readonly events: readonly string[];
  readonly refusals: readonly string[];
  readonly eventsDropped: number;
  readonly refusalsDropped: number;
}

/** Renders a message: a line of counts, then the events, then the refusals. */
export function renderLiveMessage({ events, refusals, eventsDropped, refusalsDropped }: LiveMessage): string {
  return [JSON.stringify([events.length, eventsDropped, refusalsDropped]), ...events, ...refusals].join('\n');
}

/** Parses a message; undefined for any other text, such as that of another version of the program. */
export function parseLiveMessage(text: string): LiveMessage | undefined {
  const [head = '', ...lines] = text.split('\n');
  const counts = /^\[(\d{1,15}),(\d{1,15}),(\d{1,15})\]$/.exec(head);
  if (counts === null) return undefined;
  const [, events, eventsLeftOut, refusalsLeftOut] = counts.map(Number);
  if (events === undefined || events > lines.length) return undefined;
  return {
    events: lines.slice(0, events),
    refusals: lines.slice(events),
    eventsDropped: eventsLeftOut ?? 0,
    refusalsDropped: refusalsLeftOut ?? 0,
  };
}

/**
 * Live: a sample of an app's events and rejected requests as they arrive.
 *
 * In: lines of acknowledged events and records of refusals, from every ingest process; announcements of listeners, from
 * every process that serves them. Out: server-sent events.
 * Invariant: nothing waits for a listener. The sample is bounded, and dropped events are counted. Without
 * listeners, a request reads one flag.
 * Crash: nothing is stored. Listeners reconnect, and receive later events.
 */

export interface SourceChannel {
  onAnnouncement(listener: (apps: readonly number[]) => void): () => void;
  send(idApp: number, text: string): void;
}

/** Interval of messages, and limits of a message of an app, per process. */
const sendEveryMs = 250;
const maxEvents = 5;
const maxRefusals = 5;
const maxBytes = 64 * 1024;
/** How long an app is wanted after an announcement, ms: three intervals. */
const wantedMs = 6000;
/** Maximum number of wanted apps; further ones wait. */
const maxApps = 256;

const empty = () => ({
  events: [] as string[],
  refusals: [] as string[],
  bytes: 0,
  eventsDropped: 0,
  refusalsDropped: 0,
});

type Sample = ReturnType<typeof empty> & { wantedUntilMs: number };

function takeRefusal(sample: Sample, record: object): void {
  const line = JSON.stringify(addFormerNames('refusal', record));
  if (sample.refusals.length >= maxRefusals || sample.bytes + line.length > maxBytes) {
    sample.refusalsDropped += 1;
    return;
  }
  sample.refusals.push(line);
  sample.bytes += line.length;
}

function takeEvents(sample: Sample, lines: Buffer, count: number): void {
  let takenEvents = 0;
  let from = 0;
  while (sample.events.length < maxEvents && from < lines.length) {
    const end = lines.indexOf(10, from);
    const to = end === -1 ? lines.length : end;
    if (sample.bytes + to - from > maxBytes) break;
    sample.events.push(lines.toString('utf8', from, to));
    sample.bytes += to - from;
    takenEvents += 1;
    from = to + 1;
  }
  sample.eventsDropped += count - takenEvents;
}

export function createLiveSource(channel: SourceChannel) {
  const samples = new Map<number, Sample>();
  let timer: NodeJS.Timeout | undefined;

  function send(): void {
    const nowMs = performance.now();
    for (const [idApp, sample] of samples) {
      const { events, refusals, eventsDropped, refusalsDropped } = sample;
      if (events.length + refusals.length + eventsDropped + refusalsDropped > 0) {
        channel.send(idApp, renderLiveMessage({ events, refusals, eventsDropped, refusalsDropped }));
        Object.assign(sample, empty());
      }
      if (sample.wantedUntilMs < nowMs) samples.delete(idApp);
    }
    if (samples.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  const forget = channel.onAnnouncement((apps) => {
    const wantedUntilMs = performance.now() + wantedMs;
    for (const idApp of apps) {
      const known = samples.get(idApp);
      if (known !== undefined) known.wantedUntilMs = wantedUntilMs;
      else if (samples.size < maxApps) samples.set(idApp, { wantedUntilMs, ...empty() });
    }
    if (samples.size > 0) timer ??= setInterval(send, sendEveryMs);
  });

  return {
    /** Reports whether there are listeners of any app. */
    isWanted: () => timer !== undefined,
    /** Samples the lines (NDJSON) of an acknowledged request. */
    stored(idApp: number, lines: Buffer, count: number): void {
      const sample = samples.get(idApp);
      if (sample !== undefined) takeEvents(sample, lines, count);
    },
    /** Samples records of rejected requests. */
    refused(idApp: number, records: readonly object[]): void {
      const sample = samples.get(idApp);
      if (sample !== undefined) for (const record of records) takeRefusal(sample, record);
    },
    async stop(): Promise<void> {
      forget();
      send();
      clearInterval(timer);
      timer = undefined;
      samples.clear();
    },
  };
}
