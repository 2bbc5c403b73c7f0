import { useState } from 'preact/hooks';
import { callApi } from '../frame/client.ts';
import { formatCount, formatTime } from '../parts/format.ts';
import { useKeptFocus } from '../parts/kept-focus.ts';
import { useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { Pager } from '../parts/pager.tsx';
import { SearchField } from '../parts/search-field.tsx';
import { AppChangeDialog, type AppChange, type OperatedApp } from './app-dialogs.tsx';
import { MadeDialog, type Made } from './dialog.tsx';

const pageSize = 50;

/** What is done with an app: what the button says, to whom sees the row and to whom hears it. */
const liveActions = [
  { kind: 'token', text: 'Give a token', label: 'Give a token to app', isPlain: false },
  { kind: 'set', text: 'Change', label: 'Change app', isPlain: false },
  { kind: 'remove', text: 'Remove', label: 'Remove app', isPlain: true },
] as const;
const removedActions = [{ kind: 'restore', text: 'Restore', label: 'Restore app', isPlain: false }] as const;

function AppRow({ app, onAsk }: { readonly app: OperatedApp; readonly onAsk: (asked: AppChange) => void }) {
  const { idApp, title, platform, idAccount, tokens, removedAt } = app;
  return (
    <li>
      <div class="item-head">
        <span class="item-title">{title}</span>
        <span class="muted small">
          App {idApp} · {platform} · account {idAccount}
          {removedAt !== undefined && ` · removed ${formatTime(Date.parse(removedAt) / 1000)}`}
        </span>
      </div>
      {removedAt === undefined && (
        <ul class="chips" aria-label={`Tokens of app ${idApp}`}>
          {tokens.map(({ prefix, createdAt }) => (
            <li class="chip" key={prefix + createdAt} title={`Made ${formatTime(Date.parse(createdAt) / 1000)}`}>
              <code>{prefix}…</code>
              <button
                class="chip-button"
                type="button"
                aria-label={`Take the token ${prefix} of app ${idApp}`}
                onClick={() => onAsk({ kind: 'revoke', app, prefix })}
              >
                Take
              </button>
            </li>
          ))}
          {tokens.length === 0 && <li class="problem">No token: its events are refused.</li>}
        </ul>
      )}
      <div class="row item-actions">
        {(removedAt === undefined ? liveActions : removedActions).map(({ kind, text, label, isPlain }) => (
          <button
            key={kind}
            class={`button small ${isPlain ? 'plain' : ''}`}
            type="button"
            aria-label={`${label} ${idApp}`}
            onClick={() => onAsk({ kind, app })}
          >
            {text}
          </button>
        ))}
      </div>
    </li>
  );
}

/** The apps of all accounts, and what changes them. */
export function AppsPart() {
  const [search, setSearch] = useState('');
  const [offset, setOffset] = useState(0);
  const [isRemoved, setRemoved] = useState(false);
  const [asked, setAsked] = useState<AppChange>();
  const [made, setMade] = useState<Made>();
  const kept = useKeptFocus();
  const { data, error, isLoading, reload } = useLoaded(
    (signal) =>
      callApi('/api/operations/v1/apps.json', {
        given: { search, offset: String(offset), limit: String(pageSize), ...(isRemoved ? { removed: '1' } : {}) },
        signal,
      }),
    [search, offset, isRemoved],
  );
  function done(token?: Made): void {
    setAsked(undefined);
    setMade(token);
    reload();
  }
  return (
    <section {...kept} class="card stack" aria-labelledby="operated-apps" aria-busy={isLoading}>
      <div class="spread">
        <h2 id="operated-apps" tabIndex={-1}>
          Apps <span class="muted">{data === undefined ? '' : formatCount(data.total)}</span>
        </h2>
        <div class="row">
          <label class="check small">
            <input
              type="checkbox"
              checked={isRemoved}
              onChange={() => {
                setRemoved(!isRemoved);
                setOffset(0);
              }}
            />
            <span>Removed ones</span>
          </label>
          <SearchField
            label="Find an app by title or id"
            onSearch={(text) => {
              setSearch(text);
              setOffset(0);
            }}
          />
          <button class="button primary" type="button" onClick={() => setAsked({ kind: 'add' })}>
            Add an app
          </button>
        </div>
      </div>
      {error && <Message kind="error">{error.message}</Message>}
      {data === undefined && error === undefined && <p class="muted">Loading…</p>}
      {data?.total === 0 && !isLoading && <p class="muted">{isRemoved ? 'None was removed.' : 'There is none.'}</p>}
      {data !== undefined && data.apps.length > 0 && (
        <ul class="items">
          {data.apps.map((app) => (
            <AppRow key={app.idApp} app={app} onAsk={setAsked} />
          ))}
        </ul>
      )}
      <Pager offset={offset} size={pageSize} total={data?.total ?? 0} onMove={setOffset} />
      {asked !== undefined && <AppChangeDialog asked={asked} onDone={done} onClose={() => setAsked(undefined)} />}
      {made !== undefined && <MadeDialog made={made} onClose={() => setMade(undefined)} />}
    </section>
  );
}
