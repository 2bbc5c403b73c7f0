import { useEffect, useRef, useState } from 'preact/hooks';
import { callApi } from '../frame/client.ts';
import { signIns } from '../frame/session.ts';
import { mostEntries, toEntry, type Entry } from './entries.ts';
import { listen, type Arrival, type Standing } from './listen.ts';
import { useOutOfSight } from './out-of-sight.ts';

/** What arrived is shown so often, milliseconds: a page that is drawn for each event is drawn all the time. */
const showEveryMs = 300;
/** Refusals of before that a page begins with. */
const earlierRefusals = 50;
/** A page that nobody looks at for so long gives its place and its connection to others: both are few. */
const outOfSightMs = 300_000;
const outOfSight = 'The page was out of sight for five minutes, and goes on when it is looked at.';

export interface Arrivals {
  /** The newest first. */
  readonly entries: readonly Entry[];
  readonly standing: Standing;
  /** What came and is not among them, because it was sampled or read too slowly. */
  readonly leftOut: { readonly events: number; readonly refusals: number };
  /** What came while it was paused, and is shown then. */
  readonly waiting: number;
  readonly isPaused: boolean;
  readonly setPaused: (isPaused: boolean) => void;
  readonly clear: () => void;
}

const nothing = { events: 0, refusals: 0 };

/** What is collected between two drawings. */
interface Collected {
  entries: Entry[];
  leftOut: { events: number; refusals: number };
  waiting: number;
}

function take(collected: Collected, arrival: Arrival): void {
  if (arrival.name === 'left_out') {
    const { events, refusals } = arrival.data as { readonly events: number; readonly refusals: number };
    collected.leftOut = { events: collected.leftOut.events + events, refusals: collected.leftOut.refusals + refusals };
    return;
  }
  collected.entries = [toEntry(arrival), ...collected.entries].slice(0, mostEntries);
  collected.waiting += 1;
}

/** Listens to an app while the page is there, after the refusals of before. Bounded, however much comes. */
export function useArrivals(idApp: string): Arrivals {
  const collected = useRef<Collected>({ entries: [], leftOut: nothing, waiting: 0 });
  const pausing = useRef(false);
  const [shown, setShown] = useState<Pick<Arrivals, 'entries' | 'leftOut'>>({ entries: [], leftOut: nothing });
  const [waiting, setWaiting] = useState(0);
  const [isPaused, setPaused] = useState(false);
  const [standing, setStanding] = useState<Standing>({ kind: 'connecting' });
  const count = signIns.value;
  const isOut = useOutOfSight(outOfSightMs);

  function show(): void {
    const { entries, leftOut, waiting: came } = collected.current;
    setWaiting(pausing.current ? came : 0);
    if (pausing.current) return;
    collected.current.waiting = 0;
    setShown((before) => (before.entries === entries && before.leftOut === leftOut ? before : { entries, leftOut }));
  }

  useEffect(() => {
    if (isOut) {
      setStanding({ kind: 'waiting', why: outOfSight });
      return undefined;
    }
    const gone = new AbortController();
    const onArrival = (arrival: Arrival): void => take(collected.current, arrival);
    callApi('/api/app/v1/refusals.json', {
      given: { idApp, limit: String(earlierRefusals) },
      signal: gone.signal,
    })
      .then(({ refusals }) => {
        if (collected.current.entries.length > 0) return;
        for (const data of refusals.toReversed()) onArrival({ name: 'refusal', data });
      })
      // The listening below says what is wrong.
      .catch(() => undefined)
      .finally(() => void listen(idApp, gone.signal, onArrival, setStanding));
    const timer = setInterval(show, showEveryMs);
    return () => {
      gone.abort();
      clearInterval(timer);
    };
  }, [idApp, count, isOut]);

  return {
    ...shown,
    standing,
    waiting,
    isPaused,
    setPaused(paused) {
      pausing.current = paused;
      setPaused(paused);
      show();
    },
    clear() {
      collected.current = { entries: [], leftOut: nothing, waiting: 0 };
      setShown({ entries: [], leftOut: nothing });
      setWaiting(0);
    },
  };
}
