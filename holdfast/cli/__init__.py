"""The program `holdfast`: `main` lists its commands, `commands` holds them, `screens` draws."""
