import { useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../frame/client.ts';
import { hrefOf } from '../frame/router.ts';
import { formatCount } from './format.ts';
import { useLoaded, type Loaded } from './load.ts';
import { Message } from './message.tsx';
import { Pager } from './pager.tsx';
import { SearchField } from './search-field.tsx';

type AppList = AnswerOf<'/api/data/v1/apps.json'>;

const pageSize = 50;

function loadApps(given: Readonly<Record<string, string>>, signal: AbortSignal): Promise<AppList> {
  return callApi('/api/data/v1/apps.json', { given, signal });
}

/** Loads one app of the account; undefined data and an error of status 404 where it has none of that id. */
function useApp(idApp: string): Loaded<AppList['apps'][number] | undefined> {
  return useLoaded(async (signal) => (await loadApps({ idApp }, signal)).apps[0], [idApp]);
}

/** The apps of the account, to choose one: links to a page, with the app's id behind it. */
export function AppsCard({ page }: { readonly page: string }) {
  const [search, setSearch] = useState('');
  const [offset, setOffset] = useState(0);
  const { data, error, isLoading } = useLoaded(
    (signal) => loadApps({ search, offset: String(offset), limit: String(pageSize) }, signal),
    [search, offset],
  );
  const hasNone = data?.total === 0 && search === '' && !isLoading;
  return (
    <section class="card stack" aria-labelledby="apps" aria-busy={isLoading}>
      <div class="spread">
        <h2 id="apps">Apps{data !== undefined && <span class="muted"> {formatCount(data.total)}</span>}</h2>
        {!hasNone && (
          <SearchField
            label="Find an app by title or id"
            onSearch={(text) => {
              setSearch(text);
              setOffset(0);
            }}
          />
        )}
      </div>
      {error && <Message kind="error">{error.message}</Message>}
      {data === undefined && error === undefined && <p class="muted">Loading…</p>}
      {hasNone && (
        <p class="muted">
          The account has no app yet. The operator adds one with <code>tributary app add ID --platform web</code>, or on
          the page Operations.
        </p>
      )}
      {data?.total === 0 && search !== '' && !isLoading && <p class="muted">No app has this in its title or id.</p>}
      {data !== undefined && data.apps.length > 0 && (
        <ul class="app-list">
          {data.apps.map(({ idApp, title, platform }) => (
            <li key={idApp}>
              <a href={hrefOf(`${page}/${idApp}`)}>
                <span class="app-title">{title}</span>
                <span class="muted small">
                  {platform} · {idApp}
                </span>
              </a>
            </li>
          ))}
        </ul>
      )}
      <Pager offset={offset} size={pageSize} total={data?.total ?? 0} onMove={setOffset} />
    </section>
  );
}

/** The head of a page about one app, with the way back to all of them. */
export function AppHead({
  page,
  other,
  idApp,
}: {
  readonly page: string;
  readonly other: string;
  readonly idApp: string;
}) {
  const { data, error } = useApp(idApp);
  const name = page === 'data' ? 'Data' : 'Live';
  return (
    <div class="page-head">
      <div>
        <p class="small">
          <a href={hrefOf(page)}>{name}: all apps</a>
        </p>
        <h1 tabIndex={-1}>{data?.title ?? `App ${idApp}`}</h1>
        <p class="muted">{data === undefined ? (error?.message ?? ' ') : `${data.platform} · ${data.idApp}`}</p>
      </div>
      <a class="button" href={hrefOf(`${other}/${idApp}`)}>
        {page === 'data' ? 'Watch live' : 'Show its data'}
      </a>
    </div>
  );
}
