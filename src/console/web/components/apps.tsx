import { hrefOf } from '../shell/browser.ts';
import { callApi } from '../shell/client.ts';
import { session } from '../shell/session.ts';
import { useListedApps, type ListedApp } from './activity.ts';
import { Sparkline } from './chart.tsx';
import { formatDate, formatShort } from './format.ts';
import { Card, LoadingState, Note, usePagedList } from './layout.tsx';
import { useLoaded } from './load.ts';

function AppEvents({ app: { events, lastDate, days = [] } }: { readonly app: ListedApp }) {
  if (events === undefined) return null;
  if (events === 0 || lastDate === undefined) return <span class="muted small">No events yet</span>;
  return (
    <>
      <Sparkline values={days} />
      <span class="small">
        <b>{formatShort(events)}</b> events
        <span class="muted"> · last {formatDate(lastDate)}</span>
      </span>
    </>
  );
}

function NoApps() {
  const of = session.value;
  if (typeof of === 'object' && of.isOperator)
    return (
      <div class="empty small">
        <p>No apps yet.</p>
        <a class="button primary" href={hrefOf('operations/apps')}>
          Add app
        </a>
      </div>
    );
  return (
    <p class="muted">
      No apps yet. An operator adds one with <code>tributary app add ID --platform web</code>, or on the page
      Operations.
    </p>
  );
}

/** Lists the account's apps as links to a page of each, most events first. */
export function AppsCard({ page }: { readonly page: string }) {
  const { search, callArguments, field, pager } = usePagedList('Find an app by title or id');
  const { data, activity, error, isLoading } = useListedApps(callArguments);
  const isEmpty = data?.total === 0 && !isLoading;
  return (
    <Card
      id="apps"
      title="Apps"
      count={data?.total}
      isBusy={isLoading}
      beside={isEmpty && search === '' ? <></> : field}
    >
      <LoadingState of={{ data, error }} />
      {isEmpty && search === '' && <NoApps />}
      {isEmpty && search !== '' && <p class="muted">No apps match.</p>}
      {data !== undefined && data.apps.length > 0 && (
        <ul class="app-list">
          {data.apps.map((app) => (
            <li key={app.idApp}>
              <a href={hrefOf(`${page}/${app.idApp}`)}>
                <span class="app-title">{app.title}</span>
                <span class="muted small">
                  {app.platform} · {app.idApp}
                </span>
                <AppEvents app={app} />
              </a>
            </li>
          ))}
        </ul>
      )}
      {activity.data === undefined && data !== undefined && (
        <Note>
          {activity.error === undefined ? 'Counting events…' : `Events are not counted: ${activity.error.message}`}
        </Note>
      )}
      {activity.data?.countedFrom !== undefined && (
        <Note>Events are counted from {formatDate(activity.data.countedFrom)} on.</Note>
      )}
      {pager(data?.total)}
    </Card>
  );
}

/** The head of a page about one app. */
export function AppHead({ page, idApp }: { readonly page: 'data' | 'live'; readonly idApp: string }) {
  const { data, error } = useLoaded(
    (signal) => callApi('/api/data/v1/apps.json', { callArguments: { idApp }, signal }),
    [idApp],
  );
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
