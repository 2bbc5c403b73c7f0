import type { ComponentType } from 'preact';
import { useEffect, useErrorBoundary, useLayoutEffect, useRef } from 'preact/hooks';
import { Button, Segments } from '../parts/controls.tsx';
import { Message } from '../parts/layout.tsx';
import { useAction } from '../parts/load.ts';
import { ownZone } from '../parts/zones.ts';
import { chooseTheme, hrefOf, path, theme, themes } from './browser.ts';
import { isConnected, isSignedOut } from './client.ts';
import { cannotTell, isOutdated, isShownOnce, session, signOut, type SignedIn } from './session.ts';
import { BrandMark, SignInDialog, SignInPage } from './sign-in.tsx';

/** A page of the console, and its place in the navigation. */
export interface Page {
  /** Its path below `/console/`; '' is the first page. Paths below it are the page's own. */
  readonly path: string;
  readonly title: string;
  readonly component: ComponentType;
  /** To whom it is shown: what it asks for is decided by the service, whoever sees the page. */
  readonly isFor: 'account' | 'operator';
}

type Pages = readonly Page[];

/** The pages of a user: an operator need not belong to an account. */
const pagesOf = (pages: Pages, { isOperator, idAccount }: SignedIn): Pages =>
  pages.filter(({ isFor }) => (isFor === 'operator' ? isOperator : idAccount !== 0));

/** The page of the address; at the front door, the first that the user has. */
function findPage(own: Pages): Page | undefined {
  const [first = ''] = path.value.split('/');
  return own.find((page) => page.path === first) ?? (first === '' ? own[0] : undefined);
}

function Navigation({ pages, shown }: { readonly pages: Pages; readonly shown: Page | undefined }) {
  const nav = useRef<HTMLElement>(null);
  // In a narrow window the row of links scrolls: the page that is shown is among those that are seen.
  useLayoutEffect(() => {
    const own = nav.current;
    const link = own?.querySelector<HTMLElement>('[aria-current]');
    if (own && link) own.scrollLeft = link.offsetLeft + link.offsetWidth / 2 - own.offsetLeft - own.clientWidth / 2;
  }, [shown]);
  return (
    <nav ref={nav} aria-label="Pages">
      <ul>
        {pages.map((page) => (
          <li key={page.path}>
            <a href={hrefOf(page.path)} aria-current={page === shown ? 'page' : undefined}>
              {page.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** Begins anew; `isForgetful`: without what the page had kept, which may be what it failed at. */
function reload(isForgetful: boolean): void {
  if (isForgetful) sessionStorage.clear();
  location.reload();
}

interface GuardedProps {
  readonly component: ComponentType;
  /** What is drawn is drawn anew with it, before whoever gave it goes on. */
  readonly path: string;
}

/** A page; where it fails, a word of it in its place, instead of nothing. */
function GuardedPage({ component: Component }: GuardedProps) {
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
        <Button kind="primary" onClick={() => reload(false)}>
          Load it anew
        </Button>
        <Button onClick={() => reload(true)}>Forget what was filled in, and load it anew</Button>
      </div>
    </div>
  );
}

/** The page that is shown; whoever comes to it by a link or a key begins at its heading. */
function ShownPage({ page }: { readonly page: Page | undefined }) {
  const before = useRef<{ readonly page: Page | undefined }>();
  useLayoutEffect(() => {
    document.title = `${page?.title ?? 'Not found'} · tributary`;
    // Also where the link that led here went with what was shown before.
    const isElsewhere = before.current?.page !== page || document.activeElement === document.body;
    if (before.current !== undefined && isElsewhere)
      document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true });
    before.current = { page };
  }, [page, path.value]);
  if (page !== undefined) return <GuardedPage key={page.path} component={page.component} path={path.value} />;
  return (
    <div class="empty">
      <h1 tabIndex={-1}>There is no such page</h1>
      <p>
        <a href={hrefOf('')}>New export</a>
      </p>
    </div>
  );
}

/** Who is signed in, how the console looks, and the way out. */
function UserMenu({ of }: { readonly of: SignedIn }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const { error, act } = useAction();
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
        <Segments
          legend="Appearance"
          isLegendShown
          name="theme"
          choices={themes.map((each) => [each, each] as const)}
          value={theme.value}
          onChoose={chooseTheme}
        />
        {error !== undefined && <Message kind="error">You are still signed in. {error.message}</Message>}
        <Button kind="wide" onClick={() => void act(signOut)}>
          Sign out
        </Button>
      </div>
    </details>
  );
}

/** What is said of the service on every page. */
function ServiceMessages() {
  return (
    <div role="status" class="connection">
      {!isConnected.value && (
        <Message kind="warning">
          The connection to the service is lost. What you have typed is kept; it goes on by itself when the service is
          back.
        </Message>
      )}
      {isOutdated.value && (
        <Message kind="info">
          The service has been upgraded: load this page anew when it suits you. An order that is not sent yet is kept.{' '}
          <button class="link" type="button" onClick={() => location.reload()}>
            Load it anew
          </button>
        </Message>
      )}
    </div>
  );
}

/** Everything: the frame with a page in it, or the sign-in. */
export function Shell({ pages }: { readonly pages: Pages }) {
  const of = session.value;
  if (of === 'unknown')
    return isConnected.value && cannotTell.value === undefined ? null : (
      <main class="sign-in" id="main">
        <Message kind="error">
          {isConnected.value ? cannotTell.value?.message : 'The service is not reached.'} This page goes on when it is
          back.
        </Message>
      </main>
    );
  if (of === undefined) return <SignInPage />;
  const own = pagesOf(pages, of);
  const page = findPage(own);
  return (
    <>
      <button class="skip" type="button" onClick={() => document.querySelector<HTMLElement>('#main')?.focus()}>
        Skip to the page
      </button>
      <header class="bar">
        <a class="brand" href={hrefOf('')} aria-label="tributary: New export">
          <BrandMark />
          <span class="brand-name">tributary</span>
        </a>
        <Navigation pages={own} shown={page} />
        <UserMenu of={of} />
      </header>
      <ServiceMessages />
      <main id="main" tabIndex={-1}>
        <ShownPage page={page} />
      </main>
      {isSignedOut.value && !isShownOnce.value && <SignInDialog idUser={of.idUser} />}
    </>
  );
}
