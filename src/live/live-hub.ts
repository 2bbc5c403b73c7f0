import type { ServerResponse } from 'node:http';
import { openEventStream, type EventStream } from '../runtime/http/event-stream.ts';
import { parseMessage, type LiveMessage } from './live-source.ts';

/** Whom a listener listens to, and for how long they may. */
interface ListenerRights {
  readonly idApp: number;
  /** Whose the app is: accounts share the places of a process. */
  readonly idAccount: number;
  /** Says that they still may: asked whenever access has changed, and every second. */
  readonly isAllowed: () => boolean;
}

/**
 * Why a listener is not served: too many listen already; the broker is away, or denies what is shown; the right was
 * taken back meanwhile; the service stops.
 */
export type NotServed = 'full' | 'away' | 'denied' | 'forbidden' | 'stopping';

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
  findHindrance(): Promise<'away' | 'denied' | undefined>;
  announce(apps: readonly number[]): void;
  listen(idApp: number, listener: (text: string) => void): () => void;
}

/** Listeners of an app, and of all apps, at one process. Of the latter no account keeps more than its share. */
const maxOfApp = 16;
const maxInAll = 128;
const retryMs = 2000;
const maxWaitingBytes = 256 * 1024;
const tickMs = 1000;
/** Announcements, and signs of life, by the ticks between them. */
const announceEvery = 2;
const beatEvery = 10;
/** Whether anything can be shown at all is asked as often as that. */
const lookEvery = 3;
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

/** Tells a client that was slow, and can take something again, how much it has missed. */
function tellMissed(listener: Listener): void {
  if (!sendLeftOut(listener.stream, listener.missedEvents, listener.missedRefusals, 'slow')) return;
  listener.missedEvents = 0;
  listener.missedRefusals = 0;
}

/** Passes a message on; of what a slow client cannot take the rest is counted. */
function pass(listener: Listener, { events, refusals, eventsLeftOut, refusalsLeftOut }: LiveMessage): void {
  const { stream } = listener;
  tellMissed(listener);
  for (const line of events) if (!stream.send('event', line)) listener.missedEvents += 1;
  for (const line of refusals) if (!stream.send('refusal', line)) listener.missedRefusals += 1;
  if (sendLeftOut(stream, eventsLeftOut, refusalsLeftOut, 'sampled')) return;
  listener.missedEvents += eventsLeftOut;
  listener.missedRefusals += refusalsLeftOut;
}

/** Where all places are taken: whose is given up for an account, one of the account that has the most, by two or more. */
function findPlace(listeners: readonly Listener[], idAccount: number): Listener | undefined {
  const counts = new Map<number, number>();
  const countOf = (account: number): number => counts.get(account) ?? 0;
  for (const listener of listeners) counts.set(listener.idAccount, countOf(listener.idAccount) + 1);
  const [most = idAccount] = [...counts.keys()].toSorted((a, b) => countOf(b) - countOf(a));
  if (countOf(most) < countOf(idAccount) + 2) return undefined;
  return listeners.findLast((listener) => listener.idAccount === most);
}

/** Those who listen, by app. */
interface Audiences {
  readonly all: () => Listener[];
  readonly apps: () => number[];
  readonly sizeOf: (idApp: number) => number;
  readonly add: (listener: Listener) => void;
  readonly remove: (listener: Listener) => void;
}

function createAudiences(channel: HubChannel): Audiences {
  const audiences = new Map<number, Audience>();

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

  return {
    all: () => [...audiences.values()].flatMap(({ listeners }) => [...listeners]),
    apps: () => [...audiences.keys()],
    sizeOf: (idApp) => audiences.get(idApp)?.listeners.size ?? 0,
    add: (listener) => void join(listener.idApp).listeners.add(listener),
    remove(listener) {
      const audience = audiences.get(listener.idApp);
      if (audience?.listeners.delete(listener) !== true || audience.listeners.size > 0) return;
      audience.leave();
      audiences.delete(listener.idApp);
    },
  };
}

/** Creates the hub of one process, without listeners. */
export function createLiveHub(channel: HubChannel): LiveHub {
  const audiences = createAudiences(channel);
  let ticks = 0;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  const announce = (): void => channel.announce(audiences.apps());
  const endAll = (): void => audiences.all().forEach(({ stream }) => stream.end());

  function check(): void {
    for (const { stream, isAllowed } of audiences.all())
      if (stream.stalledMs() > maxStalledMs || !isAllowed()) stream.end();
  }

  /** Ends all where the broker denies what is shown: who comes again is told so. While it is away it may be back soon. */
  async function look(): Promise<void> {
    if ((await channel.findHindrance()) === 'denied') endAll();
  }

  function tick(): void {
    ticks += 1;
    check();
    // Nothing more may come.
    for (const listener of audiences.all()) tellMissed(listener);
    if (ticks % announceEvery === 0) announce();
    if (ticks % beatEvery === 0) for (const { stream } of audiences.all()) stream.beat();
    if (ticks % lookEvery === 0) void look();
  }

  function remove(listener: Listener): void {
    audiences.remove(listener);
    if (audiences.apps().length > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  function hasPlace({ idApp, idAccount }: ListenerRights): boolean {
    if (audiences.sizeOf(idApp) >= maxOfApp) return false;
    const all = audiences.all();
    if (all.length < maxInAll) return true;
    const other = findPlace(all, idAccount);
    if (other === undefined) return false;
    remove(other);
    other.stream.end();
    return true;
  }

  function add(response: ServerResponse, rights: ListenerRights): void {
    const stream = openEventStream(response, { retryMs, maxWaitingBytes, onEnd: () => remove(listener) });
    const listener: Listener = { ...rights, stream, missedEvents: 0, missedRefusals: 0 };
    audiences.add(listener);
    timer ??= setInterval(tick, tickMs);
    announce();
  }

  return {
    async serve(response, rights) {
      if (isClosed) return 'stopping';
      const hindrance = await channel.findHindrance();
      if (hindrance !== undefined) return hindrance;
      // Others may have come meanwhile, this one gone, and its right been taken back.
      if (isClosed) return 'stopping';
      if (response.destroyed) return undefined;
      if (!rights.isAllowed()) return 'forbidden';
      if (!hasPlace(rights)) return 'full';
      add(response, rights);
      return undefined;
    },
    check,
    size: () => audiences.all().length,
    close() {
      isClosed = true;
      endAll();
    },
  };
}
