import { hrefOf } from '../frame/browser.ts';
import { callApi, type AnswerOf } from '../frame/client.ts';
import { Card, LoadState, useListPart } from './layout.tsx';
import { useLoaded, type Loaded } from './load.ts';

type AppList = AnswerOf<'/api/data/v1/apps.json'>;

function loadApps(given: Readonly<Record<string, string>>, signal: AbortSignal): Promise<AppList> {
  return callApi('/api/data/v1/apps.json', { given, signal });
}

/** Loads one app of the account; undefined data and an error of status 404 where it has none of that id. */
function useApp(idApp: string): Loaded<AppList['apps'][number] | undefined> {
  return useLoaded(async (signal) => (await loadApps({ idApp }, signal)).apps[0], [idApp]);
}

/** The apps of the account, to choose one: links to a page, with the app's id behind it. */
export function AppsCard({ page }: { readonly page: string }) {
  const { search, given, field, pager } = useListPart('Find an app by title or id');
  const loaded = useLoaded((signal) => loadApps(given, signal), Object.values(given));
  const { data, isLoading } = loaded;
  const isEmpty = data?.total === 0 && !isLoading;
  return (
    <Card
      id="apps"
      title="Apps"
      count={data?.total}
      isBusy={isLoading}
      beside={isEmpty && search === '' ? <></> : field}
    >
      <LoadState of={loaded} />
      {isEmpty && search === '' && (
        <p class="muted">
          The account has no app yet. The operator adds one with <code>tributary app add ID --platform web</code>, or on
          the page Operations.
        </p>
      )}
      {isEmpty && search !== '' && <p class="muted">No app has this in its title or id.</p>}
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
      {pager(data?.total)}
    </Card>
  );
}

interface AppHeadProps {
  readonly page: string;
  readonly other: string;
  readonly idApp: string;
}

/** The head of a page about one app, with the way back to all of them. */
export function AppHead({ page, other, idApp }: AppHeadProps) {
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
