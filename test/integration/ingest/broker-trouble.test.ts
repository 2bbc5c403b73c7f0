import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { startTestIngest, type ImportAnswer, type TestIngest } from '../../helpers/ingest.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const mebibyte = 1024 * 1024;

async function start(options: Parameters<typeof startTestIngest>[1] = {}): Promise<TestIngest> {
  const service = await startTestIngest(testFolder(), options);
  onTestFinished(() => service.stop());
  return service;
}

/** A client that sends one event after another until it is stopped, and keeps a ledger of the responses. */
function startClient(service: TestIngest, name: string) {
  const answers: {
    readonly id: string;
    readonly status: number;
    readonly endedMs: number;
    readonly answer: ImportAnswer;
  }[] = [];
  const stopped = new AbortController();
  async function run(): Promise<void> {
    for (let number = 0; !stopped.signal.aborted; number += 1) {
      const id = `${name}-${number}`;
      const answer = await service.post('web', 'login', { customUserId: id });
      const endedMs = performance.now();
      answers.push({ id, status: answer.status, endedMs, answer });
      // A client that is refused tries again a little later.
      if (answer.status !== 200) await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  const finished = run();
  return {
    answers,
    async stop() {
      stopped.abort();
      await finished;
    },
  };
}

describe('import with a failing broker', () => {
  it('Import with a stalled broker answers every request with 500 and Retry-After, never a false 200, and resumes automatically', async () => {
    const service = await start();
    const clients = Array.from({ length: 20 }, (_, index) => startClient(service, `c${index}`));
    const all = () => clients.flatMap((client) => client.answers);
    await waitFor('events flow', () => all().length > 200);

    service.nats.signal('SIGSTOP');
    await waitFor('refusals came', () => all().filter((answer) => answer.status === 500).length > 25);
    service.nats.signal('SIGCONT');
    const resumedMs = performance.now();
    const resumed = () => all().filter((answer) => answer.status === 200 && answer.endedMs > resumedMs);
    await waitFor('events flow again', () => resumed().length > 200);
    for (const client of clients) await client.stop();

    const answers = all();
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200, 500]));
    for (const { answer } of answers.filter((one) => one.status === 500)) {
      expect(answer.body).toBe('{"error":"Internal Server Error"}');
      expect(answer.headers.get('retry-after')).toBe('1');
      expect(answer.headers.get('x-error-detail')).toMatch(/^(not stored|unknown): /);
    }

    // acknowledged <= stored <= acknowledged + unknown, by id
    const stored = (await service.newLines()).map((line) => String(line['custom_user_id']));
    expect(new Set(stored).size).toBe(stored.length);
    const inStream = new Set(stored);
    const acknowledged = answers.filter((answer) => answer.status === 200);
    const refused = answers.filter(
      ({ answer }) => answer.headers.get('x-error-detail')?.startsWith('not stored') === true,
    );
    expect(acknowledged.filter((answer) => !inStream.has(answer.id))).toEqual([]);
    expect(refused.filter((answer) => inStream.has(answer.id))).toEqual([]);
    expect(await service.metric('tributary_ingest_events_acknowledged_total{kind="login"}')).toBe(acknowledged.length);
  });

  it('Import with a killed broker resumes automatically when the broker is back, and acknowledged events are stored once', async () => {
    const service = await start();
    const clients = Array.from({ length: 10 }, (_, index) => startClient(service, `c${index}`));
    const acknowledged = () =>
      clients.flatMap((client) => client.answers.filter((answer) => answer.status === 200).map((answer) => answer.id));
    for (let round = 1; round <= 3; round += 1) {
      const before = acknowledged().length;
      await waitFor('events flow', () => acknowledged().length > before + 100);
      await service.nats.kill();
      await service.nats.restart();
    }
    const before = acknowledged().length;
    await waitFor('events flow again', () => acknowledged().length > before + 100);
    for (const client of clients) await client.stop();
    await service.nats.kill();
    await waitFor(
      'the loss is seen',
      async () => (await service.post('web', 'login', { customUserId: 'unlucky' })).status === 500,
    );
    expect(service.ingest.facts()['problems']).toMatchObject([{ message: 'the broker does not accept events' }]);
    await service.nats.restart();
    await waitFor(
      'the return is seen without a request',
      () => (service.ingest.facts()['problems'] as unknown[]).length === 0,
    );
    const stored = (await service.newLines()).map((line) => String(line['custom_user_id']));
    expect(new Set(stored).size).toBe(stored.length);
    const inStream = new Set(stored);
    expect(acknowledged().filter((id) => !inStream.has(id))).toEqual([]);
  });

  it('Import with a full stream rejects requests, stores nothing of them, and accepts events again when there is space', async () => {
    const service = await start({ streamMaxBytes: mebibyte });
    const filler = 'x'.repeat(9000);
    let accepted = 0;
    let refused: ImportAnswer | undefined;
    while (refused === undefined) {
      const answer = await service.post('web', 'login', { customUserId: `u${accepted}`, customPlatformUserId: filler });
      if (answer.status === 200) accepted += 1;
      else refused = answer;
    }
    expect(refused).toMatchObject({ status: 500, body: '{"error":"Internal Server Error"}' });
    expect(refused.headers.get('x-error-detail')).toBe('not stored: the stream is full');
    expect(await service.newLines()).toHaveLength(accepted);
    expect(service.ingest.facts()['problems']).toMatchObject([{ message: 'the stream is full; imports are rejected' }]);
    const { jetstreamManager } = await import('@nats-io/jetstream');
    await (await jetstreamManager(service.connection.nats)).streams.purge('TRIBUTARY_EVENTS', { keep: 1 });
    expect(await service.post('web', 'login', { customUserId: 'again' })).toMatchObject({ status: 200 });
    expect(service.ingest.facts()).toMatchObject({ waitingBytes: 0, problems: [], warnings: [] });
  });

  it('Import with its disk at the reserve rejects requests before it sends anything, and resumes automatically', async () => {
    let low = true;
    const service = await start({ isDiskLow: () => low });
    const keyed = (customUserId: string): Promise<ImportAnswer> =>
      service.post('web', 'login', { customUserId }, { 'idempotency-key': 'k' });
    const refused = await keyed('u');
    expect(refused).toMatchObject({ status: 500, body: '{"error":"Internal Server Error"}' });
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await service.newLines()).toEqual([]);
    expect(service.ingest.facts()['problems']).toMatchObject([
      { message: expect.stringContaining('reserve') as string },
    ]);
    low = false;
    // Its key stands for nothing: what was refused is surely not stored.
    expect(await keyed('another')).toMatchObject({ status: 200 });
    expect(await keyed('u')).toMatchObject({ status: 400 });
    expect(service.ingest.facts()).toMatchObject({ waitingBytes: 0, problems: [], warnings: [] });
  });

  it('A key whose request had no answer in time is kept for it, since it may be stored', async () => {
    const service = await start({ answerWithinMs: 300 });
    const keyed = (customUserId: string): Promise<ImportAnswer> =>
      service.post('web', 'login', { customUserId }, { 'idempotency-key': 'k' });
    service.nats.signal('SIGSTOP');
    const unknown = await keyed('u');
    expect(unknown.headers.get('x-error-detail')).toMatch(/^unknown: /);
    expect(await keyed('another')).toMatchObject({ status: 400 });
    service.nats.signal('SIGCONT');
    await waitFor('the retry is stored', async () => (await keyed('u')).status === 200);
    expect(new Set((await service.newLines()).map((line) => line['custom_user_id']))).toEqual(new Set(['u']));
  });

  it('Import with a stalled broker rejects at once what no longer fits into the waiting queue', async () => {
    const service = await start({ maxWaitingBytes: 20_000, answerWithinMs: 1000 });
    service.nats.signal('SIGSTOP');
    const requests = Array.from({ length: 20 }, (_, index) =>
      service.post('mini-app', 'login', {
        customPlatformUserId: `${index}${'x'.repeat(9000)}`,
        xPlatform: 'mobile_web',
      }),
    );
    const details = (await Promise.all(requests)).map((answer) => answer.headers.get('x-error-detail'));
    service.nats.signal('SIGCONT');
    expect(
      details.filter((detail) => detail === 'not stored: too many events wait for the broker').length,
    ).toBeGreaterThanOrEqual(10);
    expect(details).not.toContain(null);
  });
});

describe('stopping', () => {
  it('Import that is stopped answers the requests in progress before it ends', async () => {
    const service = await startTestIngest(testFolder());
    service.nats.signal('SIGSTOP');
    const waiting = Array.from({ length: 10 }, (_, index) =>
      service.post('web', 'login', { customUserId: `u${index}` }),
    );
    await waitFor(
      'the requests are being published',
      async () => (await service.metric('tributary_ingest_events_received_total{kind="login"}')) === 10,
    );
    const stopping = service.ingest.stop();
    service.nats.signal('SIGCONT');
    const answers = await Promise.all(waiting);
    await stopping;
    expect(answers.map((answer) => answer.status)).toEqual(Array.from({ length: 10 }, () => 200));
    expect(await service.newLines()).toHaveLength(10);
    await expect(service.post('web', 'login', { customUserId: 'late' })).rejects.toThrow('fetch failed');
    await service.stop();
  });
});

describe('natural batching', () => {
  it('Natural batching lets many requests share a message, and sends a lone one at once', async () => {
    const service = await start();
    await service.post('web', 'login', { customUserId: 'alone' });
    expect(await service.metric('tributary_ingest_group_requests_count')).toBe(1);
    // While the broker is suspended, the group in flight stays there, and later requests have to wait.
    service.nats.signal('SIGSTOP');
    const crowd = Array.from({ length: 100 }, (_, index) =>
      service.post('web', 'login', { customUserId: `u${index}` }),
    );
    await waitFor(
      'all of them wait',
      async () => (await service.metric('tributary_ingest_events_received_total{kind="login"}')) === 101,
    );
    service.nats.signal('SIGCONT');
    expect((await Promise.all(crowd)).map((answer) => answer.status)).toEqual(crowd.map(() => 200));
    expect(await service.newLines()).toHaveLength(101);
    const messages = await service.metric('tributary_ingest_group_requests_count');
    expect(messages).toBeLessThanOrEqual(20);
    expect(await service.metric('tributary_ingest_group_requests_sum')).toBe(101);
  });
});
