import type { ServerResponse } from 'node:http';
import { addFormerNames } from '../runtime/former-names.ts';
import { openEventStream, type EventStream } from '../runtime/http/event-stream.ts';
import { parseLiveMessage, type LiveMessage } from './live-source.ts';

interface ListenerRights {
  readonly idApp: number;
  /** Account of the app. Accounts share the listeners of a process fairly. */
  readonly idAccount: number;
  /** Whether the user may still listen; checked after each change of access, and every second. */
  readonly isAllowed: () => boolean;
}

/** Reason: too many listeners; broker unreachable, or subjects denied; no permission; service stopping. */
export type LiveUnavailableReason = 'full' | 'away' | 'denied' | 'forbidden' | 'stopping';

export interface HubChannel {
  findHindrance(): Promise<'away' | 'denied' | undefined>;
  announce(apps: readonly number[]): void;
  listen(idApp: number, listener: (text: string) => void): () => void;
}

/** Limits the listeners of an app, and of all apps, at one process; accounts share the latter. */
const maxOfApp = 16;
const maxInAll = 128;
const retryMs = 2000;
const maxWaitingBytes = 256 * 1024;
const tickMs = 1000;
/** Ticks between announcements, and between heartbeats. */
const announceEvery = 2;
const beatEvery = 10;
/** Ticks between checks of the broker. */
const lookEvery = 3;
/** A client that reads nothing for longer is dropped, ms. */
const maxStalledMs = 30_000;

interface Listener extends ListenerRights {
  readonly stream: EventStream;
  /** Counts of what was not sent to a slow client. */
  missedEvents: number;
  missedRefusals: number;
}

/** Sends counts of events and refusals that were not sent. Returns false if the client has not read earlier data. */
function sendDropped(stream: EventStream, events: number, refusals: number, reason: 'sampled' | 'slow'): boolean {
  if (events + refusals === 0) return true;
  const counts = { events, refusals, reason };
  if (!stream.send('dropped', JSON.stringify(counts))) return false;
  // The former event, until 0.5.
  stream.send('left_out', JSON.stringify(addFormerNames('dropped', counts)));
  return true;
}

/** Sends a slow client the counts of what it has missed, once it reads again. */
function tellMissed(listener: Listener): void {
  if (!sendDropped(listener.stream, listener.missedEvents, listener.missedRefusals, 'slow')) return;
  listener.missedEvents = 0;
  listener.missedRefusals = 0;
}

/** Sends a message; counts what a slow client cannot take. */
function pass(listener: Listener, { events, refusals, eventsDropped, refusalsDropped }: LiveMessage): void {
  const { stream } = listener;
  tellMissed(listener);
  for (const line of events) if (!stream.send('event', line)) listener.missedEvents += 1;
  for (const line of refusals) if (!stream.send('refusal', line)) listener.missedRefusals += 1;
  if (sendDropped(stream, eventsDropped, refusalsDropped, 'sampled')) return;
  listener.missedEvents += eventsDropped;
  listener.missedRefusals += refusalsDropped;
}

/** Returns the listener to drop for an account: one of the account with the most, if it has at least two more. */
function findPlace(listeners: readonly Listener[], idAccount: number): Listener | undefined {
  const counts = new Map<number, number>();
  const countOf = (account: number): number => counts.get(account) ?? 0;
  for (const listener of listeners) counts.set(listener.idAccount, countOf(listener.idAccount) + 1);
  const [largestAccount = idAccount] = [...counts.keys()].toSorted((a, b) => countOf(b) - countOf(a));
  if (countOf(largestAccount) < countOf(idAccount) + 2) return undefined;
  return listeners.findLast((listener) => listener.idAccount === largestAccount);
}

/** Creates the set of listeners, which subscribes to each app that has some. */
function createAudience(channel: HubChannel) {
  const listeners = new Set<Listener>();
  const leaves = new Map<number, () => void>();
  const ofApp = (idApp: number): Listener[] => [...listeners].filter((listener) => listener.idApp === idApp);
  return {
    listeners,
    ofApp,
    apps: (): number[] => [...leaves.keys()],
    add(listener: Listener): void {
      const { idApp } = listener;
      listeners.add(listener);
      if (leaves.has(idApp)) return;
      const stopListening = channel.listen(idApp, (text) => {
        const message = parseLiveMessage(text);
        if (message !== undefined) for (const one of ofApp(idApp)) pass(one, message);
      });
      leaves.set(idApp, stopListening);
    },
    remove(listener: Listener): void {
      const { idApp } = listener;
      listeners.delete(listener);
      if (ofApp(idApp).length > 0) return;
      leaves.get(idApp)?.();
      leaves.delete(idApp);
    },
  };
}

export type LiveHub = ReturnType<typeof createLiveHub>;

export function createLiveHub(channel: HubChannel) {
  const { listeners, ofApp, apps, ...audience } = createAudience(channel);
  let ticks = 0;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  const announce = (): void => channel.announce(apps());
  const endAll = (): void => listeners.forEach(({ stream }) => stream.end());

  function check(): void {
    for (const { stream, isAllowed } of listeners) if (stream.stalledMs() > maxStalledMs || !isAllowed()) stream.end();
  }

  /** Ends all listeners if the broker denies the subjects: clients get the reason when they reconnect. */
  async function checkPermission(): Promise<void> {
    if ((await channel.findHindrance()) === 'denied') endAll();
  }

  function tick(): void {
    ticks += 1;
    check();
    // Possibly no later message sends the counts.
    for (const listener of listeners) tellMissed(listener);
    if (ticks % announceEvery === 0) announce();
    if (ticks % beatEvery === 0) for (const { stream } of listeners) stream.beat();
    if (ticks % lookEvery === 0) void checkPermission();
  }

  function remove(listener: Listener): void {
    audience.remove(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  function hasPlace({ idApp, idAccount }: ListenerRights): boolean {
    if (ofApp(idApp).length >= maxOfApp) return false;
    if (listeners.size < maxInAll) return true;
    const other = findPlace([...listeners], idAccount);
    if (other === undefined) return false;
    remove(other);
    other.stream.end();
    return true;
  }

  function add(response: ServerResponse, rights: ListenerRights): void {
    const stream = openEventStream(response, { retryMs, maxWaitingBytes, onEnd: () => remove(listener) });
    const listener: Listener = { ...rights, stream, missedEvents: 0, missedRefusals: 0 };
    audience.add(listener);
    timer ??= setInterval(tick, tickMs);
    announce();
  }

  return {
    /**
     * Serves a listener until it disconnects, loses its permission, or the service stops. Returns when the response has
     * started, or the reason if it is not served; the response is then untouched.
     */
    async serve(response: ServerResponse, rights: ListenerRights): Promise<LiveUnavailableReason | undefined> {
      if (isClosed) return 'stopping';
      const hindrance = await channel.findHindrance();
      if (hindrance !== undefined) return hindrance;
      // Meanwhile others may have connected, and this one may have left or lost its permission.
      if (isClosed) return 'stopping';
      if (response.destroyed) return undefined;
      if (!rights.isAllowed()) return 'forbidden';
      if (!hasPlace(rights)) return 'full';
      add(response, rights);
      return undefined;
    },
    /** Ends the listeners that have lost their permission. */
    check,
    size: () => listeners.size,
    close(): void {
      isClosed = true;
      endAll();
    },
  };
}
