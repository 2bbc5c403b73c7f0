import { hrefOf } from '../shell/browser.ts';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { Card, LoadingState, usePagedList } from './layout.tsx';
import { useLoaded, type Loaded } from './load.ts';

function useApps(callArguments: Readonly<Record<string, string>>): Loaded<AnswerOf<'/api/data/v1/apps.json'>> {
  return useLoaded(
    (signal) => callApi('/api/data/v1/apps.json', { callArguments, signal }),
    Object.values(callArguments),
  );
}

/** Lists the account's apps as links to a page of each. */
export function AppsCard({ page }: { readonly page: string }) {
  const { search, callArguments, field, pager } = usePagedList('Find an app by title or id');
  const loaded = useApps(callArguments);
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
      <LoadingState of={loaded} />
      {isEmpty && search === '' && (
        <p class="muted">
          No apps yet. An operator adds one with <code>tributary app add ID --platform web</code>, or on the page
          Operations.
        </p>
      )}
      {isEmpty && search !== '' && <p class="muted">No apps match.</p>}
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

/** The head of a page about one app. */
export function AppHead({ page, idApp }: { readonly page: 'data' | 'live'; readonly idApp: string }) {
  const { data, error } = useApps({ idApp });
  const app = data?.apps[0];
  const [name, other, link] = page === 'data' ? ['Data', 'live', 'Watch live'] : ['Live', 'data', 'Show data'];
  return (
    <div class="page-head">
      <div>
        <p class="small">
          <a href={hrefOf(page)}>{name}: all apps</a>
        </p>
        <h1 tabIndex={-1}>{app?.title ?? `App ${idApp}`}</h1>
        <p class="muted">{app === undefined ? (error?.message ?? ' ') : `${app.platform} · ${app.idApp}`}</p>
      </div>
      <a class="button" href={hrefOf(`${other}/${idApp}`)}>
        {link}
      </a>
    </div>
  );
}
