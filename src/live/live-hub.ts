import type { ServerResponse } from 'node:http';
import { openEventStream, type EventStream } from '../runtime/http/event-stream.ts';
import { parseMessage, type LiveMessage } from './live-message.ts';

/** Whom a listener listens to, and for how long they may. */
export interface ListenerRights {
  readonly idApp: number;
  /** Says that they still may: asked whenever access has changed, and every second. */
  readonly isAllowed: () => boolean;
}

/** Why a listener is not served: too many listen already; the broker is away; the service stops. */
export type NotServed = 'full' | 'away' | 'stopping';

/** Those who listen at one process. */
export interface LiveHub {
  /**
   * Serves a listener until they go, may no longer listen, or the service stops; returns when the answer has begun. The
   * response is untouched where they are not served.
   */
  serve(response: ServerResponse, rights: ListenerRights): Promise<NotServed | undefined>;
  /** Access has changed. */
  check(): void;
  /** How many listen. */
  size(): number;
  /** Ends what is served, and serves nobody any more. */
  close(): void;
}

/** The channel's part in it. */
export interface HubChannel {
  isReady(): Promise<boolean>;
  announce(apps: readonly number[]): void;
  listen(idApp: number, listener: (text: string) => void): () => void;
}

/** Listeners of an app, and of all apps, at one process. */
const maxOfApp = 16;
const maxInAll = 128;
const retryMs = 2000;
const maxWaitingBytes = 256 * 1024;
const tickMs = 1000;
/** Announcements, and signs of life, by the ticks between them. */
const announceEvery = 2;
const beatEvery = 10;
/** A client that reads nothing for so long is gone, milliseconds. */
const maxStalledMs = 30_000;

/** One who listens. */
interface Listener extends ListenerRights {
  readonly stream: EventStream;
  /** What they were not sent, because they have not read what they were. */
  missedEvents: number;
  missedRefusals: number;
}

/** The listeners of one app. */
interface Audience {
  readonly listeners: Set<Listener>;
  readonly leave: () => void;
}

function sendLeftOut(stream: EventStream, events: number, refusals: number, why: 'sampled' | 'slow'): boolean {
  return events + refusals === 0 || stream.send('left_out', JSON.stringify({ events, refusals, why }));
}

/** Passes a message on; of what a slow client cannot take the rest is counted. */
function pass(listener: Listener, { events, refusals, eventsLeftOut, refusalsLeftOut }: LiveMessage): void {
  const { stream } = listener;
  if (sendLeftOut(stream, listener.missedEvents, listener.missedRefusals, 'slow')) {
    listener.missedEvents = 0;
    listener.missedRefusals = 0;
  }
  for (const line of events) if (!stream.send('event', line)) listener.missedEvents += 1;
  for (const line of refusals) if (!stream.send('refusal', line)) listener.missedRefusals += 1;
  if (sendLeftOut(stream, eventsLeftOut, refusalsLeftOut, 'sampled')) return;
  listener.missedEvents += eventsLeftOut;
  listener.missedRefusals += refusalsLeftOut;
}

/** Creates the hub of one process, without listeners. */
export function createLiveHub(channel: HubChannel): LiveHub {
  const audiences = new Map<number, Audience>();
  let inAll = 0;
  let ticks = 0;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  const listAll = (): Listener[] => [...audiences.values()].flatMap(({ listeners }) => [...listeners]);
  const announce = (): void => channel.announce([...audiences.keys()]);

  function check(): void {
    for (const { stream, isAllowed } of listAll()) if (stream.stalledMs() > maxStalledMs || !isAllowed()) stream.end();
  }

  function tick(): void {
    ticks += 1;
    check();
    if (ticks % announceEvery === 0) announce();
    if (ticks % beatEvery === 0) for (const { stream } of listAll()) stream.beat();
  }

  function join(idApp: number): Audience {
    const found = audiences.get(idApp);
    if (found !== undefined) return found;
    const listeners = new Set<Listener>();
    const leave = channel.listen(idApp, (text) => {
      const message = parseMessage(text);
      if (message !== undefined) for (const listener of listeners) pass(listener, message);
    });
    const audience = { listeners, leave };
    audiences.set(idApp, audience);
    return audience;
  }

  function remove(listener: Listener): void {
    const audience = audiences.get(listener.idApp);
    if (audience?.listeners.delete(listener) !== true) return;
    inAll -= 1;
    if (audience.listeners.size === 0) {
      audience.leave();
      audiences.delete(listener.idApp);
    }
    if (inAll > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  function add(response: ServerResponse, rights: ListenerRights): void {
    const stream = openEventStream(response, { retryMs, maxWaitingBytes, onEnd: () => remove(listener) });
    const listener: Listener = { ...rights, stream, missedEvents: 0, missedRefusals: 0 };
    join(rights.idApp).listeners.add(listener);
    inAll += 1;
    timer ??= setInterval(tick, tickMs);
    announce();
  }

  return {
    async serve(response, rights) {
      if (isClosed) return 'stopping';
      if (!(await channel.isReady())) return 'away';
      // Others may have come meanwhile, and this one gone.
      if (isClosed) return 'stopping';
      if (response.destroyed) return undefined;
      if (inAll >= maxInAll || (audiences.get(rights.idApp)?.listeners.size ?? 0) >= maxOfApp) return 'full';
      add(response, rights);
      return undefined;
    },
    check,
    size: () => inAll,
    close() {
      isClosed = true;
      for (const { stream } of listAll()) stream.end();
    },
  };
}
