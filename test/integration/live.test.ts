import { once } from 'node:events';
import { createServer, request, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createLiveHub, type HubChannel, type LiveUnavailableReason } from '../../src/live/live-hub.ts';
import {
  parseLiveMessage,
  renderLiveMessage,
  createLiveSource,
  type SourceChannel,
} from '../../src/live/live-source.ts';
import { takeOverConnections } from '../../src/runtime/http/connections.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { readEvents, type ServerSentEvent } from '../helpers/event-stream.ts';
import { waitFor } from '../helpers/wait.ts';

/** A channel within this process, in place of the broker. */
function createChannel(): SourceChannel & HubChannel & { readonly announced: number[][]; deny(): void } {
  const announced: number[][] = [];
  let hindrance: 'denied' | undefined;
  const listeners = new Map<number, Set<(text: string) => void>>();
  let hear: ((apps: readonly number[]) => void) | undefined;
  return {
    announced,
    deny: () => (hindrance = 'denied'),
    findHindrance: () => Promise.resolve(hindrance),
    announce(apps) {
      announced.push([...apps]);
      hear?.(apps);
    },
    onAnnouncement(listener) {
      hear = listener;
      return () => (hear = undefined);
    },
    send: (idApp, text) => listeners.get(idApp)?.forEach((listener) => listener(text)),
    listen(idApp, listener) {
      const all = listeners.get(idApp) ?? new Set();
      listeners.set(idApp, all.add(listener));
      return () => void all.delete(listener);
    },
  };
}

const lines = (...events: object[]): Buffer =>
  Buffer.from(events.map((event) => `${JSON.stringify(event)}\n`).join(''));

async function startHub(isAllowed = (): boolean => true) {
  const channel = createChannel();
  const source = createLiveSource(channel);
  const hub = createLiveHub(channel);
  const liveUnavailableReason: LiveUnavailableReason[] = [];
  const server = createServer((asked, response) => {
    const idApp = Number(asked.url?.slice(1));
    // The account has hundreds of apps.
    void hub.serve(response, { idApp, idAccount: Math.floor(idApp / 100), isAllowed }).then((why) => {
      if (why === undefined) return;
      liveUnavailableReason.push(why);
      response.writeHead(429).end();
    });
  });
  takeOverConnections(server, 10_000, createLogger('silent'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  onTestFinished(async () => {
    hub.close();
    await source.stop();
    server.closeAllConnections();
    server.close();
  });
  async function listen(idApp: number): Promise<IncomingMessage> {
    const asked = request({ host: '127.0.0.1', port, path: `/${idApp}`, agent: false });
    asked.end();
    asked.on('error', () => undefined);
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    onTestFinished(() => void asked.destroy());
    return answer;
  }
  return { channel, source, hub, notServed: liveUnavailableReason, listen, server, port };
}

const named = (events: readonly ServerSentEvent[], name: string): unknown[] =>
  events.filter((event) => event.name === name).map(({ data }) => JSON.parse(data) as unknown);

describe('what arrives, live', () => {
  it('A message is parsed as it was rendered, and other text is skipped', () => {
    const message = { events: ['{"a":"\\n"}', '{}'], refusals: ['{"b":1}'], eventsDropped: 3, refusalsDropped: 0 };
    expect(parseLiveMessage(renderLiveMessage(message))).toEqual(message);
    for (const text of ['', 'x', '[1,2]', '[9,0,0]\n{}', '[1e3,0,0]', '{"events":[]}'])
      expect(parseLiveMessage(text), text).toBeUndefined();
  });

  it('Only apps with listeners are sampled and sent', async () => {
    const { source, listen, channel } = await startHub();
    source.stored(1, lines({ n: 0 }), 1);
    expect(source.isWanted()).toBe(false);
    const events = readEvents(await listen(1));
    await waitFor('app 1 is wanted', () => source.isWanted());
    source.stored(2, lines({ n: 'foreign' }), 1);
    source.stored(1, lines({ n: 1 }), 1);
    await waitFor('an event has arrived', () => events.length > 0);
    expect(named(events, 'event')).toEqual([{ n: 1 }]);
    expect(channel.announced.every((apps) => apps.every((idApp) => idApp === 1))).toBe(true);
  });

  it('Each event is sent separately and byte for byte', async () => {
    const { source, listen } = await startHub();
    const events = readEvents(await listen(1));
    await waitFor('the app is wanted', () => source.isWanted());
    const hostile = [
      'a\nb',
      'data: x\n\nevent: refusal\ndata: {}',
      '\r\n\r\n',
      '\u2028\u2029',
      'ïé😀',
      '\u0000',
      ': comment',
    ];
    for (const [index, text] of hostile.entries()) {
      source.stored(1, lines({ text }), 1);
      await waitFor('it has arrived', () => named(events, 'event').length > index);
    }
    expect(named(events, 'event')).toEqual(hostile.map((text) => ({ text })));
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => String(index + 1)));
    expect(new Set(events.map(({ name }) => name))).toEqual(new Set(['event']));
  });

  it('A few of many events are shown, and the others are counted', async () => {
    const { source, listen } = await startHub();
    const events = readEvents(await listen(1));
    await waitFor('the app is wanted', () => source.isWanted());
    const batch = lines(...Array.from({ length: 20 }, (_, n) => ({ n })));
    for (let n = 0; n < 50; n += 1) source.stored(1, batch, 20);
    source.refused(1, [{ detail: 'd' }]);
    await waitFor('the count has arrived', () => named(events, 'left_out').length > 0);
    expect(named(events, 'left_out')).toMatchObject(named(events, 'dropped') as object[]);
    expect(named(events, 'event').length).toBeLessThanOrEqual(20);
    const dropped = named(events, 'dropped').reduce<number>((sum, one) => sum + (one as { events: number }).events, 0);
    expect(named(events, 'event').length + dropped).toBe(1000);
    expect(named(events, 'refusal')).toEqual([{ detail: 'd' }]);
  });

  it('A slow listener holds no memory, gets the count of missed events, and does not delay others', async () => {
    const { source, listen, channel } = await startHub();
    const slow = await listen(1);
    const quick = readEvents(await listen(1));
    await waitFor('the app is wanted', () => source.isWanted());
    const event = JSON.stringify({ text: 'x'.repeat(200_000) });
    const sent = 100;
    for (let n = 0; n < sent; n += 1) {
      channel.send(1, renderLiveMessage({ events: [event], refusals: [], eventsDropped: 0, refusalsDropped: 0 }));
      await waitFor('the quick one has it', () => quick.length === n + 1);
    }
    const late = readEvents(slow);
    await waitFor('the slow one has read something', () => late.length > 0);
    await waitFor('the count has arrived', () => {
      channel.send(
        1,
        renderLiveMessage({ events: ['{"last":1}'], refusals: [], eventsDropped: 0, refusalsDropped: 0 }),
      );
      return late.some(({ name }) => name === 'dropped');
    });
    const [missed] = named(late, 'dropped') as { events: number; reason: string }[];
    const before = late.findIndex(({ name }) => name === 'dropped');
    expect(missed?.reason).toBe('slow');
    expect(named(late.slice(0, before), 'event').length + (missed?.events ?? 0)).toBeGreaterThanOrEqual(sent);
    expect(named(late.slice(0, before), 'event').length).toBeLessThan(sent);
  });

  it('A slow listener gets the count of missed events even if no further event arrives', async () => {
    const { source, listen, channel } = await startHub();
    const slow = await listen(1);
    await waitFor('the app is wanted', () => source.isWanted());
    const event = JSON.stringify({ text: 'x'.repeat(200_000) });
    const sent = 100;
    for (let n = 0; n < sent; n += 1)
      channel.send(1, renderLiveMessage({ events: [event], refusals: [], eventsDropped: 0, refusalsDropped: 0 }));
    const late = readEvents(slow);
    await waitFor('the count has arrived', () => late.some(({ name }) => name === 'left_out'));
    expect(named(late, 'left_out')).toMatchObject([{ why: 'slow' }]);
    const [missed] = named(late, 'dropped') as { events: number; reason: string }[];
    expect([named(late, 'event').length + (missed?.events ?? 0), missed?.reason]).toEqual([sent, 'slow']);
  });

  it('A HEAD request gets the headers, and does not count as a listener', async () => {
    const { hub, server } = await startHub();
    const { port } = server.address() as AddressInfo;
    const asked = request({ host: '127.0.0.1', port, path: '/1', method: 'HEAD', agent: false });
    asked.end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    await once(answer.resume(), 'end');
    expect([answer.statusCode, answer.headers['content-type']]).toEqual([200, 'text/event-stream; charset=utf-8']);
    await waitFor('no listener remains', () => hub.size() === 0);
    expect(hub.size()).toBe(0);
  });

  it('The stream of a listener that loses its permission ends', async () => {
    let allowed = true;
    const { hub, listen } = await startHub(() => allowed);
    const answer = await listen(1);
    const ended = once(answer.resume(), 'end');
    allowed = false;
    hub.check();
    await ended;
    await waitFor('no listener remains', () => hub.size() === 0);
    expect(hub.size()).toBe(0);
  });

  it('A listener that loses its permission during the start is not served, nor is any while the broker denies the subjects', async () => {
    let allowed = false;
    const { hub, listen, notServed, channel } = await startHub(() => allowed);
    await listen(1);
    allowed = true;
    const ended = once((await listen(1)).resume(), 'end');
    channel.deny();
    await listen(1);
    expect([notServed, hub.size()]).toEqual([['forbidden', 'denied'], 1]);
    await ended;
    await waitFor('no listener remains', () => hub.size() === 0);
    expect(hub.size()).toBe(0);
  }, 20_000);

  it('An account with many listeners does not exclude others: its listeners are dropped until they have as many', async () => {
    const { hub, listen, notServed } = await startHub();
    const greedy: IncomingMessage[] = [];
    for (let n = 0; n < 128; n += 1) greedy.push((await listen(100 + Math.floor(n / 16))).resume());
    let ended = 0;
    for (const answer of greedy) answer.once('end', () => (ended += 1));
    expect((await listen(108)).statusCode).toBe(429);
    const others = await Promise.all(Array.from({ length: 8 }, (_, n) => listen(200 + n)));
    expect(others.map(({ statusCode }) => statusCode)).toEqual(others.map(() => 200));
    await waitFor('the listeners were dropped', () => ended === 8);
    for (let n = 0; n < 64; n += 1) await listen(300 + Math.floor(n / 16));
    for (let n = 0; n < 64; n += 1) await listen(400 + Math.floor(n / 16));
    expect([hub.size(), others.filter(({ readableEnded }) => readableEnded)]).toEqual([128, []]);
    expect(new Set(notServed)).toEqual(new Set(['full']));
  });

  it('A half-closed client keeps listening', async () => {
    const { hub, port, source } = await startHub();
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    let heard = '';
    socket.on('data', (piece: Buffer) => (heard += piece.toString()));
    socket.end('GET /1 HTTP/1.1\r\nHost: a\r\n\r\n');
    await waitFor('it was probed three times', () => heard.split('\n:\n').length > 3);
    source.stored(1, lines({ n: 1 }), 1);
    await waitFor('an event has arrived', () => heard.includes('data: {"n":1}'));
    expect(hub.size()).toBe(1);
  });

  it('The listeners of an app are limited, a leaving one is replaced, and a stop of the service ends all', async () => {
    const { hub, listen, notServed, source } = await startHub();
    const answers: IncomingMessage[] = [];
    for (let n = 0; n < 16; n += 1) answers.push(await listen(1));
    expect((await listen(1)).statusCode).toBe(429);
    expect(notServed).toEqual(['full']);
    for (const answer of answers) answer.destroy();
    // Sooner than the next heartbeat, which detects it as well.
    await waitFor('they have left', () => hub.size() === 0, 5000);
    expect((await listen(1)).statusCode).toBe(200);
    expect((await listen(2)).statusCode).toBe(200);
    await waitFor('they are served', () => source.isWanted());
    hub.close();
    await waitFor('all are ended', () => hub.size() === 0);
    await listen(1);
    expect(notServed).toEqual(['full', 'stopping']);
  });
});
