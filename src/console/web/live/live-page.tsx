import { useEffect, useRef, useState } from 'preact/hooks';
import { path } from '../shell/browser.ts';
import { callApi } from '../shell/client.ts';
import { signIns } from '../shell/session.ts';
import { useActivity } from '../components/activity.ts';
import { AppHead, AppsCard } from '../components/apps.tsx';
import { Button, SearchField, Segments } from '../components/controls.tsx';
import { FirstEventCard } from '../components/first-event.tsx';
import { formatCount } from '../components/format.ts';
import { MessageBox } from '../components/layout.tsx';
import { ownZone } from '../components/zones.ts';
import { EntryList, maxEntries, filterEntries, toEntry, type Entry, type Filter } from './entries.tsx';
import { listen, type Arrival, type ConnectionState } from './listen.ts';

/** Interval of rendering, ms, which does not depend on the number of events. */
const showEveryMs = 300;
/** Number of earlier rejected requests that are shown first. */
const earlierRefusals = 50;
/** Time after which a hidden page disconnects, ms: listeners and connections are limited. */
const outOfSightMs = 300_000;
const outOfSight = 'Paused while this tab was hidden.';

const nothing = { events: 0, refusals: 0 };

/** Events buffered between two renderings. */
interface Collected {
  /** The newest first. */
  entries: readonly Entry[];
  /** Events that the service did not send, because of sampling or a slow reader. */
  dropped: { events: number; refusals: number };
  waiting: number;
}

function take(collected: Collected, arrival: Arrival): void {
  if (arrival.name === 'dropped') {
    const { events, refusals } = arrival.data as { readonly events: number; readonly refusals: number };
    collected.dropped = { events: collected.dropped.events + events, refusals: collected.dropped.refusals + refusals };
    return;
  }
  collected.entries = [toEntry(arrival), ...collected.entries].slice(0, maxEntries);
  collected.waiting += 1;
}

/** Reports whether the page has been hidden for `afterMs`. */
function usePageHidden(afterMs: number): boolean {
  const [isOut, setOut] = useState(false);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => setOut(true), afterMs);
      else setOut(false);
    };
    look();
    document.addEventListener('visibilitychange', look);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, []);
  return isOut;
}

/** Streams an app's arrivals after its earlier rejected requests. The buffer is bounded. */
function useArrivals(idApp: string) {
  const collected = useRef<Collected>({ entries: [], dropped: nothing, waiting: 0 });
  const pausing = useRef(false);
  const [shown, setShown] = useState<Omit<Collected, 'waiting'>>({ entries: [], dropped: nothing });
  const [waiting, setWaiting] = useState(0);
  const [isPaused, setPaused] = useState(false);
  const [connectionState, setStanding] = useState<ConnectionState>({ kind: 'connecting' });
  const count = signIns.value;
  const isOut = usePageHidden(outOfSightMs);

  function show(): void {
    const { entries, dropped, waiting: came } = collected.current;
    setWaiting(pausing.current ? came : 0);
    if (pausing.current) return;
    collected.current.waiting = 0;
    setShown((before) => (before.entries === entries && before.dropped === dropped ? before : { entries, dropped }));
  }

  useEffect(() => {
    if (isOut) {
      setStanding({ kind: 'waiting', why: outOfSight });
      return undefined;
    }
    const unmounted = new AbortController();
    const onArrival = (arrival: Arrival): void => take(collected.current, arrival);
    callApi('/api/app/v1/refusals.json', {
      callArguments: { idApp, limit: String(earlierRefusals) },
      signal: unmounted.signal,
    })
      .then(({ refusals }) => {
        if (collected.current.entries.length > 0) return;
        for (const data of refusals.toReversed()) onArrival({ name: 'refusal', data });
      })
      // The stream reports the error.
      .catch(() => undefined)
      .finally(() => void listen(idApp, unmounted.signal, onArrival, setStanding));
    const timer = setInterval(show, showEveryMs);
    return () => {
      unmounted.abort();
      clearInterval(timer);
    };
  }, [idApp, count, isOut]);

  return {
    ...shown,
    standing: connectionState,
    /** Number of events received while paused. */
    waiting,
    isPaused,
    setPaused: (paused: boolean): void => {
      pausing.current = paused;
      setPaused(paused);
      show();
    },
    clear: (): void => {
      collected.current = { entries: [], dropped: nothing, waiting: 0 };
      setShown({ entries: [], dropped: nothing });
      setWaiting(0);
    },
  };
}

const kinds = [
  ['all', 'All'],
  ['event', 'Events'],
  ['refusal', 'Rejected requests'],
] as const;

/** Colour and text of the status. */
const standings: Readonly<Record<ConnectionState['kind'], readonly [kind: string, word: string]>> = {
  listening: ['good', 'Listening'],
  connecting: ['busy', 'Connecting'],
  waiting: ['warn', 'Reconnecting…'],
  refused: ['bad', 'Ended'],
};

interface ControlsProps {
  readonly arrivals: ReturnType<typeof useArrivals>;
  readonly filter: Filter;
  readonly onFilter: (filter: Filter) => void;
}

function Controls({ arrivals, filter, onFilter }: ControlsProps) {
  const { standing, isPaused, setPaused, clear, waiting } = arrivals;
  const [tone, word] = isPaused ? ['warn', 'Paused'] : standings[standing.kind];
  return (
    <div class="spread">
      <div class="row">
        <Button aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
          {isPaused ? 'Resume' : 'Pause'}
        </Button>
        <Button kind="plain" onClick={clear}>
          Clear
        </Button>
        <span role="status">
          <span class={`badge ${tone}`}>{word}</span>
        </span>
        {/* Not announced: it changes constantly. */}
        {isPaused && waiting > 0 && <span class="muted small">{formatCount(waiting)} received while paused</span>}
      </div>
      <div class="row">
        <Segments
          legend="Show"
          name="kind"
          choices={kinds}
          value={filter.kind}
          onChoose={(kind) => onFilter({ ...filter, kind })}
        />
        <SearchField label="Filter by text" onSearch={(text) => onFilter({ ...filter, text: text.toLowerCase() })} />
      </div>
    </div>
  );
}

function AppLive({ idApp }: { readonly idApp: string }) {
  const arrivals = useArrivals(idApp);
  const [filter, setFilter] = useState<Filter>({ kind: 'all', text: '' });
  const { entries, standing, dropped } = arrivals;
  const shown = filterEntries(entries, filter);
  const out = dropped.events + dropped.refusals;
  return (
    <>
      <AppHead page="live" idApp={idApp} />
      <section class="card stack" aria-label="Events and rejected requests">
        <Controls arrivals={arrivals} filter={filter} onFilter={setFilter} />
        {(standing.kind === 'waiting' || standing.kind === 'refused') && (
          <MessageBox kind={standing.kind === 'refused' ? 'error' : 'warning'}>{standing.why}</MessageBox>
        )}
        {shown.length > 0 && <EntryList entries={shown} />}
        {entries.length === 0 && standing.kind === 'listening' && (
          <p class="muted">Nothing has arrived yet. Events and rejected requests of this app appear here.</p>
        )}
        {entries.length > 0 && shown.length === 0 && <p class="muted">No entries match the filter.</p>}
        <p class="muted small">
          The newest {formatCount(shown.length)} of a sample
          {out > 0 &&
            `; ${formatCount(dropped.events)} more events and ${formatCount(dropped.refusals)} more rejected requests arrived`}
          . Times in {ownZone}.
        </p>
      </section>
      {entries.length === 0 && standing.kind === 'listening' && <NoEventsYet idApp={idApp} />}
    </>
  );
}

/** Shows how to send the first event, if the app has none in the lake either. */
function NoEventsYet({ idApp }: { readonly idApp: string }) {
  const { data } = useActivity({ idApp, limit: '1' });
  return data?.events === 0 ? (
    <div class="below-card">
      <FirstEventCard idApp={idApp} />
    </div>
  ) : null;
}

/** Shows the last events and rejected requests of an app as they arrive. */
export function LivePage() {
  const [, idApp] = path.value.split('/');
  if (idApp !== undefined) return <AppLive key={idApp} idApp={idApp} />;
  return (
    <>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>Live</h1>
          <p class="muted">Choose an app to see its events and rejected requests as they arrive.</p>
        </div>
      </div>
      <AppsCard page="live" />
    </>
  );
}
