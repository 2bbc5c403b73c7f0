import type { ComponentType } from 'preact';
import { useErrorBoundary } from 'preact/hooks';
import { Message } from '../parts/message.tsx';

/** Begins anew; `isForgetful`: without what the page had kept, which may be what it failed at. */
function reload(isForgetful: boolean): void {
  if (isForgetful) sessionStorage.clear();
  location.reload();
}

/** A page; where it fails, a word of it in its place, instead of nothing. */
export function GuardedPage({
  component: Component,
}: {
  readonly component: ComponentType;
  /** What is drawn is drawn anew with it, before whoever gave it goes on. */
  readonly path: string;
}) {
  const [failure] = useErrorBoundary((error: unknown) => reportError(error));
  if (failure === undefined) return <Component />;
  return (
    <div class="card stack">
      <h1 tabIndex={-1}>This page has failed</h1>
      <Message kind="error">{String(failure)}</Message>
      <p>
        It is a fault of the console, and nothing has happened to your exports. Load the page anew; tell the operator
        what is written here if it fails again.
      </p>
      <div class="row">
        <button class="button primary" type="button" onClick={() => reload(false)}>
          Load it anew
        </button>
        <button class="button" type="button" onClick={() => reload(true)}>
          Forget what was filled in, and load it anew
        </button>
      </div>
    </div>
  );
}
