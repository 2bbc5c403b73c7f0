import { Fragment } from 'preact';
import { useState } from 'preact/hooks';
import type { CallArguments } from '../frame/call-arguments.ts';
import { callApi, type ApiError } from '../frame/client.ts';
import { hrefOf, navigate } from '../frame/router.ts';
import { session, type SignedIn } from '../frame/session.ts';
import { toApiError, useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { ColumnsField } from './columns-field.tsx';
import { loadDictionary, type Dictionary } from './dictionary.ts';
import { draft, openDraft } from './draft.ts';
import { EstimateView } from './estimate.tsx';
import { EventField } from './event-field.tsx';
import { FilesField } from './files-field.tsx';
import { FiltersField } from './filters-field.tsx';
import { findProblems, toArguments } from './order.ts';
import { PeriodField } from './period-field.tsx';
import { PreviewView } from './preview.tsx';
import { orderKey } from './snippets.ts';
import { SnippetsView } from './snippets-view.tsx';

/** The order as it stands, and what can be done with it. */
function Summary({
  given,
  isComplete,
  onPreview,
}: {
  readonly given: CallArguments;
  readonly isComplete: boolean;
  readonly onPreview: () => void;
}) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();

  async function order(): Promise<void> {
    if (isBusy || !isComplete) return;
    setBusy(true);
    setError(undefined);
    try {
      const created = await callApi('/api/raw/v1/export/create.json', { method: 'POST', given });
      navigate(`exports/${created.idRawExport}`);
    } catch (caught) {
      setError(toApiError(caught));
      setBusy(false);
    }
  }

  return (
    <section class="card stack summary" aria-labelledby="summary-title">
      <h2 id="summary-title">Your order</h2>
      <EstimateView given={isComplete ? given : undefined} />
      <button
        type="button"
        class="button primary wide"
        aria-disabled={isBusy || !isComplete}
        onClick={() => void order()}
      >
        {isBusy ? 'Ordering…' : 'Order the export'}
      </button>
      <button type="button" class="button wide" aria-disabled={!isComplete} onClick={() => isComplete && onPreview()}>
        Show the first rows
      </button>
      {error !== undefined && (
        <Message kind="error">
          {error.message}
          {error.exports.length > 0 && ' In progress:'}
          {error.exports.map((id) => (
            <Fragment key={id}>
              {' '}
              <a href={hrefOf(`exports/${id}`)}>#{id}</a>
            </Fragment>
          ))}
          {(error.status === 0 || error.status >= 500) && (
            <>
              {' '}
              It may have been ordered all the same: look at <a href={hrefOf('exports')}>Exports</a> first.
            </>
          )}
        </Message>
      )}
    </section>
  );
}

function OrderForm({ dictionary }: { readonly dictionary: Dictionary }) {
  const [asked, setAsked] = useState<CallArguments>();
  openDraft(dictionary);
  const { value } = draft;
  if (value === undefined) return null;
  const problems = findProblems(value);
  const given = toArguments(value);
  const shared = { draft: value, dictionary };
  return (
    <div class="order">
      <div class="stack">
        <EventField {...shared} />
        <PeriodField {...shared} problem={problems.period} />
        <ColumnsField {...shared} problem={problems.selectors} />
        <FiltersField key={value.event} {...shared} />
        <FilesField {...shared} />
      </div>
      <aside aria-label="Your order" class="stack">
        <Summary given={given} isComplete={Object.keys(problems).length === 0} onPreview={() => setAsked(given)} />
      </aside>
      <div class="stack below">
        {asked !== undefined && <PreviewView asked={asked} isOld={orderKey(asked) !== orderKey(given)} />}
        <SnippetsView given={given} dictionary={dictionary} />
      </div>
    </div>
  );
}

/** For whom orders none. */
function NoExports({ isOperator }: Pick<SignedIn, 'isOperator'>) {
  return (
    <div class="card empty">
      <h2>You may not order exports</h2>
      <p>The operator of the service decides who may, when adding a user.</p>
      <p class="row">
        <a class="button" href={hrefOf('exports')}>
          Exports
        </a>
        {isOperator && (
          <a class="button primary" href={hrefOf('operations')}>
            Operations
          </a>
        )}
      </p>
    </div>
  );
}

/** The form, once it is known what can be ordered. */
function LoadedForm() {
  const { data, error } = useLoaded(() => loadDictionary(), []);
  return (
    <>
      {error !== undefined && <Message kind="error">{error.message}</Message>}
      {data === undefined && error === undefined && <p class="muted">Loading…</p>}
      {data !== undefined && <OrderForm dictionary={data} />}
    </>
  );
}

/** Orders an export. */
export function NewExportPage() {
  const of = session.value;
  if (typeof of !== 'object') return null;
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>New export</h1>
      </div>
      {of.canExport ? <LoadedForm /> : <NoExports isOperator={of.isOperator} />}
    </>
  );
}
