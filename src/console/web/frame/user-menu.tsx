import { useEffect, useRef, useState } from 'preact/hooks';
import { toApiError } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { ownZone } from '../parts/zones.ts';
import { signOut, type SignedIn } from './session.ts';
import { chooseTheme, theme, themes } from './theme.ts';

/** Who is signed in, how the console looks, and the way out. */
export function UserMenu({ of }: { readonly of: SignedIn }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    const close = (event: Event): void => {
      const isEscape = event instanceof KeyboardEvent && event.key === 'Escape';
      if (menu.current?.open !== true) return;
      if (isEscape) menu.current.querySelector('summary')?.focus();
      if (isEscape || (event.type === 'click' && !menu.current.contains(event.target as Node)))
        menu.current.open = false;
    };
    for (const kind of ['click', 'keydown']) document.addEventListener(kind, close);
    return () => {
      for (const kind of ['click', 'keydown']) document.removeEventListener(kind, close);
    };
  }, []);

  async function leave(): Promise<void> {
    setProblem('');
    await signOut().catch((error: unknown) => setProblem(toApiError(error).message));
  }

  return (
    <details class="menu" ref={menu}>
      <summary>{of.name}</summary>
      <div class="menu-panel">
        <dl class="facts">
          <dt>User</dt>
          <dd>{of.idUser}</dd>
          <dt>Account</dt>
          <dd>{of.idAccount === 0 ? 'none' : of.idAccount}</dd>
          <dt>Your zone</dt>
          <dd>{ownZone}</dd>
          <dt>Version</dt>
          <dd>{of.version}</dd>
        </dl>
        <fieldset class="segments">
          <legend>Appearance</legend>
          {themes.map((each) => (
            <label key={each}>
              <input type="radio" name="theme" checked={theme.value === each} onChange={() => chooseTheme(each)} />
              <span>{each}</span>
            </label>
          ))}
        </fieldset>
        {problem !== '' && <Message kind="error">You are still signed in. {problem}</Message>}
        <button class="button wide" type="button" onClick={() => void leave()}>
          Sign out
        </button>
      </div>
    </details>
  );
}
