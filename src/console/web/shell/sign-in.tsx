import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Button, Field } from '../components/controls.tsx';
import { ErrorMessage, MessageBox, useModal } from '../components/layout.tsx';
import { useAction, useLoaded } from '../components/load.ts';
import { signIn } from './session.ts';

/** The sign-in form. `idUser`: the user whose session has ended. */
function SignInForm({ idUser: ended = '' }: { readonly idUser?: string }) {
  const [idUser, setIdUser] = useState(ended);
  const [secret, setSecret] = useState('');
  const { isBusy, error, act } = useAction();
  const first = useRef<HTMLInputElement>(null);
  // Before the page is painted, so that no typed character is lost.
  useLayoutEffect(() => first.current?.focus(), []);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (!isBusy && !(await act(() => signIn(idUser.trim(), secret.trim())))) first.current?.focus();
  }

  return (
    <form class="stack" onSubmit={(event) => void submit(event)}>
      <Field label="Name or user id">
        <input
          ref={ended === '' ? first : null}
          name="username"
          autocomplete="username"
          required
          value={idUser}
          onInput={(event) => setIdUser(event.currentTarget.value)}
        />
      </Field>
      <Field label="Password or secret">
        <input
          ref={ended === '' ? null : first}
          // The focus of a dialog each time it opens.
          autofocus={ended !== ''}
          name="password"
          type="password"
          autocomplete="current-password"
          required
          value={secret}
          onInput={(event) => setSecret(event.currentTarget.value)}
        />
      </Field>
      <ErrorMessage error={error} />
      <Button kind="primary" type="submit" aria-disabled={isBusy}>
        {isBusy ? 'Signing in…' : 'Sign in'}
      </Button>
    </form>
  );
}

/** Reasons for which a sign-in by the provider failed, by the code in the address. */
const failures: Readonly<Record<string, string>> = {
  provider: 'The sign-in service did not confirm who you are. Try again, or ask your operator.',
  expired: 'The sign-in took too long. Try again.',
  unknown: 'No user has your name. Ask your operator to add you.',
  unverified: 'The sign-in service has not verified your address. Ask your operator.',
  ambiguous: 'Several users have your name. Sign in with your password, or ask your operator.',
  often: 'Too many sign-ins. Wait a minute, then try again.',
};

/** The sign-in by an OpenID Connect provider, if the service has one, and why the last one failed. */
function ProviderSignIn() {
  const { data } = useLoaded(
    (signal) =>
      fetch('/console/sign-in.json', { signal }).then(async (answer) => (await answer.json()) as { oidc: boolean }),
    [],
  );
  const failure = failures[new URLSearchParams(location.search).get('sign-in') ?? ''];
  return (
    <>
      {failure !== undefined && <MessageBox kind="error">{failure}</MessageBox>}
      {data?.oidc === true && (
        <a class="button wide" href="/console/oidc">
          Sign in with your organization
        </a>
      )}
    </>
  );
}

export function SignInPage() {
  return (
    <main class="sign-in" id="main">
      <div class="card">
        <h1 class="brand-name">
          <BrandMark /> tributary
        </h1>
        <p class="muted">Sign in with your name and password, or with the id and the secret of an API user.</p>
        <ProviderSignIn />
        <SignInForm />
        <details class="hint">
          <summary>Where do I find my credentials?</summary>
          <p>
            An operator adds users with <code>tributary user add NAME --account N</code>, which prints the id and the
            secret once. <code>tributary user password ID</code> sets a new password.
          </p>
        </details>
      </div>
    </main>
  );
}

/** Asks for a new sign-in in a dialog; the page and the focus stay. */
export function SignInDialog({ idUser }: { readonly idUser: string }) {
  const dialog = useModal();
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="sign-in-again"
      onCancel={(event) => event.preventDefault()}
      // A second Escape closes any dialog.
      onClose={({ currentTarget }) => currentTarget.isConnected && currentTarget.showModal()}
    >
      <h2 id="sign-in-again">Your session has ended</h2>
      <p class="muted">Sign in again to continue. Your input is kept.</p>
      <SignInForm idUser={idUser} />
    </dialog>
  );
}

export function BrandMark() {
  return (
    <svg class="brand-mark" viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M7 8c5 0 7 4 9 8s4 8 9 8" />
      <path d="M25 8c-5 0-7 4-9 8M16 16c-1 3-1 5-1 8" class="faint" />
    </svg>
  );
}
