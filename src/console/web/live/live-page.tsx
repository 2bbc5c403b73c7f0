import { useState } from 'preact/hooks';
import { path } from '../frame/router.ts';
import { AppHead, AppsCard } from '../parts/apps.tsx';
import { formatCount } from '../parts/format.ts';
import { Message } from '../parts/message.tsx';
import { ownZone } from '../parts/zones.ts';
import { SearchField } from '../parts/search-field.tsx';
import { select, type Filter } from './entries.ts';
import { EntryList } from './entry-list.tsx';
import { useArrivals, type Arrivals } from './use-arrivals.ts';

const kinds = [
  ['all', 'Everything'],
  ['event', 'Events'],
  ['refusal', 'Refusals'],
] as const;

/** Whether anything is shown, in a word. */
function StandingBadge({ standing, isPaused }: Pick<Arrivals, 'standing' | 'isPaused'>) {
  if (isPaused) return <span class="badge warn">Paused</span>;
  switch (standing.kind) {
    case 'listening':
      return <span class="badge good">Listening</span>;
    case 'connecting':
      return <span class="badge busy">Connecting</span>;
    case 'waiting':
      return <span class="badge warn">Comes back by itself</span>;
    case 'refused':
      return <span class="badge bad">Ended</span>;
    default:
      return standing satisfies never;
  }
}

function Controls({
  arrivals,
  filter,
  onFilter,
}: {
  readonly arrivals: Arrivals;
  readonly filter: Filter;
  readonly onFilter: (filter: Filter) => void;
}) {
  const { isPaused, setPaused, clear, waiting } = arrivals;
  return (
    <div class="spread">
      <div class="row">
        <button class="button" type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
          {isPaused ? 'Go on' : 'Pause'}
        </button>
        <button class="button plain" type="button" onClick={clear}>
          Clear
        </button>
        <span role="status">
          <StandingBadge {...arrivals} />
        </span>
        {/* Not read out: it counts all the time. */}
        {isPaused && waiting > 0 && <span class="muted small">{formatCount(waiting)} came meanwhile</span>}
      </div>
      <div class="row">
        <fieldset class="segments" aria-label="What is shown">
          {kinds.map(([kind, label]) => (
            <label key={kind}>
              <input
                type="radio"
                name="kind"
                checked={filter.kind === kind}
                onChange={() => onFilter({ ...filter, kind })}
              />
              <span>{label}</span>
            </label>
          ))}
        </fieldset>
        <SearchField
          label="Only with this text"
          onSearch={(text) => onFilter({ ...filter, text: text.toLowerCase() })}
        />
      </div>
    </div>
  );
}

/** What of an app arrives. */
function AppLive({ idApp }: { readonly idApp: string }) {
  const arrivals = useArrivals(idApp);
  const [filter, setFilter] = useState<Filter>({ kind: 'all', text: '' });
  const { entries, standing, leftOut } = arrivals;
  const shown = select(entries, filter);
  const out = leftOut.events + leftOut.refusals;
  return (
    <>
      <AppHead page="live" other="data" idApp={idApp} />
      <section class="card stack" aria-label="What arrives">
        <Controls arrivals={arrivals} filter={filter} onFilter={setFilter} />
        {(standing.kind === 'waiting' || standing.kind === 'refused') && (
          <Message kind={standing.kind === 'refused' ? 'error' : 'warning'}>{standing.why}</Message>
        )}
        {shown.length > 0 && <EntryList entries={shown} />}
        {entries.length === 0 && standing.kind === 'listening' && (
          <p class="muted">Nothing has arrived yet. Events and refusals of this app show here as they come.</p>
        )}
        {entries.length > 0 && shown.length === 0 && <p class="muted">Nothing of what came is as asked for.</p>}
        <p class="muted small">
          A sample, of which the newest {formatCount(shown.length)} are shown
          {out > 0 &&
            `; ${formatCount(leftOut.events)} more events and ${formatCount(leftOut.refusals)} more refusals came`}
          . Times in {ownZone}.
        </p>
      </section>
    </>
  );
}

/** The last events and refusals of an app, as they arrive. */
export function LivePage() {
  const [, idApp] = path.value.split('/');
  if (idApp !== undefined) return <AppLive key={idApp} idApp={idApp} />;
  return (
    <>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>Live</h1>
          <p class="muted">Choose the app whose events and refusals you want to see as they arrive.</p>
        </div>
      </div>
      <AppsCard page="live" />
    </>
  );
}
